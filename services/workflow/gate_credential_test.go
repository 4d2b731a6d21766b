package workflow_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/sealing/keyset"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// gated uses a credential, waits at a gate of a rollout, and uses it again.
const gated = `
run("http.request", {"url": url + "/a/before", "credential": "api"}, retry = False)
run("emit", {"type": "com.gitlab.cd.approval.requested", "data": {"rollout_id": rollout, "gate_id": "production"}})
wait_for_event(type = "com.gitlab.cd.approval.resolved", filter = {"rollout_id": rollout, "gate_id": "production"}, timeout = 3600)
run("http.request", {"url": url + "/a/after", "credential": "api"}, retry = False)
`

// atTheGate starts a run that has used a credential, and waits at its gate.
func (v *vault) atTheGate(rollout int64) (id string) {
	v.t.Helper()
	id = fmt.Sprint("gated-", rollout)
	v.submit(id, gated, fmt.Sprintf(`{"url": %q, "rollout": %d}`, v.server.URL, rollout))
	v.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_PARKED)
	return id
}

// sentSoFar is what the server was sent since the last time.
func (v *vault) sentSoFar() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := strings.Join(v.seen, " | ")
	v.seen = nil
	return all
}

// rotateKeyset replaces the key of the keyset, as docs/how-to/rotate-credentials.md says; between both steps, reseal has values sealed
// anew.
func (v *vault) rotateKeyset(reseal func()) {
	v.t.Helper()
	before, err := os.ReadFile(v.file)
	if err != nil {
		v.t.Fatal(err)
	}
	added := made(v.t)(keyset.Add(string(before)))
	all, err := keyset.List(added)
	if err != nil {
		v.t.Fatal(err)
	}
	promoted := made(v.t)(keyset.Promote(added, all[len(all)-1].ID))
	v.put(v.file, added)
	v.put(v.file, promoted)
	reseal()
	for _, key := range all[:len(all)-1] {
		promoted = made(v.t)(keyset.Remove(promoted, key.ID))
	}
	v.put(v.file, promoted)
}

// D56: a rollout that waits at a gate holds no value. After its credential and the keyset are rotated, whether or not its service has
// started anew meanwhile, it uses the new value behind the gate.
func TestACredentialIsRotatedWhileARolloutWaits(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, func(*vault, *workflow.Config) {})
			domain := v.bus.Connect(t, "domain")
			v.report(1, v.sealed(v.terms(1, "api", 1), "first", 10))
			id := v.atTheGate(12)
			if got := v.sentSoFar(); got != "/a/before Bearer first" {
				t.Fatalf("before the gate the server was sent %q", got)
			}
			v.rotateKeyset(func() { v.report(1, v.sealed(v.terms(1, "api", 2), "second", 20)) })
			if restarted {
				v.down()
				v.up()
			}
			resolve(t, domain, 12, "production")
			v.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
			if got := v.sentSoFar(); got != "/a/after Bearer second" {
				t.Errorf("behind the gate the server was sent %q, expected the new value", got)
			}
		})
	}
}

// D56: a credential that was revoked while a rollout waits fails the call behind the gate, and nothing is sent. A retry after a new value
// was given succeeds, and repeats nothing.
func TestACredentialIsRevokedWhileARolloutWaits(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(*vault, *workflow.Config) {})
	domain := v.bus.Connect(t, "domain")
	first := v.sealed(v.terms(1, "api", 1), "first", 10)
	v.report(1, first)
	id := v.atTheGate(13)
	v.sentSoFar()
	v.report(1, event.CredentialChanged{
		Name: "api", Sequence: 20, Version: 1, Kind: "http", URLPrefixes: first.URLPrefixes, Revoked: true,
	}, first)
	resolve(t, domain, 13, "production")
	failed := v.await(id, autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	if got := v.sentSoFar(); got != "" || !strings.Contains(failed.GetError(), `the credential "api" was revoked`) {
		t.Fatalf("the server was sent %q, and the run failed with %q; expected nothing, and that the credential was revoked", got, failed.GetError())
	}
	v.report(1, v.sealed(v.terms(1, "api", 2), "second", 30))
	if _, err := v.RetryWorkflow(t.Context(), &autoflowv1.RetryWorkflowRequest{OrganizationId: 1, WorkflowId: id}); err != nil {
		t.Fatal(err)
	}
	v.eventually("the retry has ended", func(ctx context.Context) bool {
		resp, err := v.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: 1, WorkflowId: id})
		return err == nil && resp.GetWorkflow().GetState() == autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED
	})
	if got := v.sentSoFar(); got != "/a/after Bearer second" {
		t.Errorf("the retry sent %q, expected the call behind the gate alone, with the new value", got)
	}
}
