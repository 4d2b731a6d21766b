package workflow_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/worker"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// till is a vault with a worker that has two Functions with a secret argument, both of which say back what they were sent, in every way
// that a worker can.
type till struct {
	*vault
	sent []string // by attempt: function, argument and secret
	mu   sync.Mutex
}

func newTill(t *testing.T) *till {
	t.Helper()
	x := &till{vault: newVault(t, func(v *vault, c *workflow.Config) {
		withWorkers(time.Minute)(c)
		c.HTTPCredentials = []workflow.HTTPCredential{{
			Name: "operators", Ref: "file:" + v.secret, URLPrefixes: []string{"worker://shop.charge"}, Organizations: []int64{organization},
		}}
	})}
	type payment struct {
		Key  string `json:"key"`
		Fail bool   `json:"fail"`
	}
	var functions []worker.Function
	for _, name := range []string{"shop.charge", "shop.refund"} {
		f := worker.Handle(name, worker.Reads, func(_ context.Context, call worker.Call, p payment) (any, error) {
			secret := call.Secrets["key"]
			x.mu.Lock()
			x.sent = append(x.sent, call.Function+" "+p.Key+" "+secret)
			x.mu.Unlock()
			if secret != "" && strings.Contains(fmt.Sprintf("%v %+v %#v", call, call, call.Secrets), secret) {
				return nil, fmt.Errorf("a call that is printed shows its secret")
			}
			if p.Fail {
				return nil, &worker.Error{Code: "declined", Message: "the server refuses " + secret}
			}
			return map[string]any{"said": []string{"Bearer " + secret}, secret: len(secret)}, nil
		})
		f.Secrets = []string{"key"}
		functions = append(functions, f)
	}
	works(t, worker.Config{Conn: dial(t, x.config.GRPCAddress, workToken), Name: "till", Functions: functions})
	x.registered("shop.refund", 1)
	return x
}

// taken returns what the worker was sent, and forgets it.
func (x *till) taken() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	sent := x.sent
	x.sent = nil
	return sent
}

func (x *till) terms(name string, version int, prefixes ...string) sealing.Terms {
	return sealing.Terms{Organization: organization, Name: name, Version: version, Kind: sealing.HTTP, URLPrefixes: prefixes}
}

// useWorker is use with a secret that a worker is sent, and says back.
func useWorker(t *testing.T) (s *service, w *autoflowv1.Workflow, canary, file string) {
	t.Helper()
	x := newTill(t)
	canary = rand.Text()
	x.report(organization, x.sealed(x.terms("shop-key", 1, "worker://shop.charge"), canary, 1))
	if _, err := x.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
		OrganizationId: organization, WorkflowId: "secret", Starlark: []byte(`
print(run("shop.charge", {"key": "shop-key"}))
r = run("shop.charge", {"key": "shop-key", "fail": True}, on_error = "return")
print(r.code, r.error)
run("shop.charge", {"key": "shop-key", "fail": True})
`),
	}); err != nil {
		t.Fatal(err)
	}
	w = x.await("secret", autoflowv1.WorkflowState_WORKFLOW_STATE_FAILED)
	want := "shop.charge shop-key " + canary
	if sent := x.taken(); strings.Join(sent, "|") != strings.Join([]string{want, want, want}, "|") {
		t.Fatalf("the worker was sent %q", sent)
	}
	lines := x.lines("secret")
	if len(lines) != 2 || !strings.Contains(lines[0], "Bearer [redacted]") || lines[1] != "declined the server refuses [redacted]" {
		t.Errorf("the program has printed %q", lines)
	}
	return x.service, w, canary, x.file
}

// TestASecretOfAWorkerLeavesNoTrace: what a worker was sent and says back is in no table, in no file of JetStream and in no answer
// (issue 18, item 2).
func TestASecretOfAWorkerLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s, w, canary, file := useWorker(t)
	history, err := s.GetHistory(t.Context(), &autoflowv1.GetHistoryRequest{OrganizationId: organization, WorkflowId: "secret"})
	if err != nil || len(history.GetEntries()) < 3 {
		t.Fatal(history, err)
	}
	logs, err := s.GetLogs(t.Context(), &autoflowv1.GetLogsRequest{OrganizationId: organization, WorkflowId: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	line, err := s.GetTimeline(t.Context(), &autoflowv1.GetTimelineRequest{OrganizationId: organization, WorkflowId: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"the workflow": w.String(), "its history": history.String(), "its logs": logs.String(), "its timeline": line.String()}
	tables(t, s, places)
	s.down()
	s.bus.Stop(t) // its files come and go no more
	files(t, filepath.Dir(filepath.Dir(file)), file, places)
	if len(places) < 20 || !strings.Contains(places["table entry"], "shop.charge") {
		t.Errorf("looked at %d places; the history is %q", len(places), places["table entry"])
	}
	for place, text := range places {
		if strings.Contains(text, canary) {
			t.Errorf("%s has the secret", place)
		}
	}
}

// TestACredentialNamesItsWorkers: a worker is sent the credentials that name its Function, when a program names them, as they are at that
// time, and no other ones: not those for URLs, for another Function, of another organization, revoked ones, or references that a run's
// starter has chosen (issue 18, item 2).
func TestACredentialNamesItsWorkers(t *testing.T) {
	t.Parallel()
	x := newTill(t)
	x.report(organization,
		x.sealed(x.terms("shop-key", 1, "worker://shop.charge"), "first", 1),
		x.sealed(x.terms("both", 1, "https://pay.example.com/", "worker://shop.refund"), "for-refunds", 1),
		x.sealed(x.terms("web", 1, x.server.URL+"/a"), "for-the-web", 1),
	)
	others := sealing.Terms{Organization: 2, Name: "theirs", Version: 1, Kind: sealing.HTTP, URLPrefixes: []string{"worker://shop.charge"}}
	x.report(2, x.sealed(others, "not-ours", 1))
	expect := func(function, arguments, sent, outcome string) {
		t.Helper()
		_, got := x.call(organization, function, arguments)
		if taken := strings.Join(x.taken(), "|"); taken != sent || !strings.Contains(got, outcome) {
			t.Errorf("%s(%s): the worker was sent %q and the call ended with %q, expected %q and %q", function, arguments, taken, got, sent, outcome)
		}
	}
	expect("shop.charge", `{"key": "shop-key"}`, "shop.charge shop-key first", "fine")
	expect("shop.charge", `{"key": "operators"}`, "shop.charge operators by-reference", "fine")
	expect("shop.refund", `{"key": "both"}`, "shop.refund both for-refunds", "fine")
	expect("shop.charge", `{}`, "shop.charge  ", "fine")
	expect("shop.refund", `{"key": "shop-key"}`, "", `forbidden shop.refund: key: the credential "shop-key" is not for workers of the function shop.refund`)
	expect("shop.refund", `{"key": "operators"}`, "", "forbidden")
	expect("shop.charge", `{"key": "both"}`, "", "forbidden")
	expect("shop.charge", `{"key": "web"}`, "", "forbidden")
	expect("shop.charge", `{"key": "theirs"}`, "", `this organization has no credential "theirs"`)
	expect("shop.charge", `{"key": 5}`, "", "invalid")
	x.report(organization, x.sealed(x.terms("shop-key", 2, "worker://shop.charge"), "second", 2))
	expect("shop.charge", `{"key": "shop-key"}`, "shop.charge shop-key second", "fine")
	revoked := x.sealed(x.terms("shop-key", 2, "worker://shop.charge"), "second", 3)
	revoked.Sealed, revoked.Revoked = nil, true
	x.report(organization, revoked)
	expect("shop.charge", `{"key": "shop-key"}`, "", "unauthorized")
	// A web server gets nothing of a credential that is for workers.
	if seen, outcome := x.get(organization, x.server.URL+"/a", "both"); seen != "" || outcome == "fine" {
		t.Errorf("the server was sent %q, and the call ended with %q", seen, outcome)
	}
	// The secrets of a run: one whose reference an operator has a credential for is sent, any other one is not.
	for ref, sent := range map[string]string{"file:" + x.secret: "shop.charge mine by-reference", "file:" + x.file: ""} {
		run := fmt.Sprint("run-of-", len(sent))
		if _, err := x.StartWorkflow(t.Context(), &autoflowv1.StartWorkflowRequest{
			OrganizationId: organization, WorkflowId: run, Secrets: map[string]string{"mine": ref},
			Starlark: []byte(`run("shop.charge", {"key": "mine"}, on_error = "return")`),
		}); err != nil {
			t.Fatal(err)
		}
		x.await(run, autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED)
		if taken := strings.Join(x.taken(), "|"); taken != sent {
			t.Errorf("with the secret %s the worker was sent %q, expected %q", ref, taken, sent)
		}
	}
	found, err := x.ListFunctions(t.Context(), &autoflowv1.ListFunctionsRequest{OrganizationId: organization})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found.GetFunctions() {
		if strings.HasPrefix(f.GetName(), "shop.") && strings.Join(f.GetSecrets(), " ") != "key" {
			t.Errorf("%s has the secrets %v, expected key", f.GetName(), f.GetSecrets())
		}
	}
}

// TestAWorkerStopsWhileTheServiceIsAway: it waits for a connection then, and for nothing else.
func TestAWorkerStopsWhileTheServiceIsAway(t *testing.T) {
	t.Parallel()
	s := startWith(t, withWorkers(time.Minute))
	stop := works(t, worker.Config{Conn: dial(t, s.config.GRPCAddress, workToken), Name: "a", Functions: []worker.Function{
		worker.Handle("shop.add", worker.Reads, func(_ context.Context, _ worker.Call, a sum) (int, error) { return a.A + a.B, nil }),
	}})
	s.registered("shop.add", 1)
	s.down()
	stop() // which waits for its end
}
