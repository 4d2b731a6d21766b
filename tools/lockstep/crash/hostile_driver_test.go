package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// trespass is the deploy program of the hostile driver: it never requests a passage. It tries each changing Function until it is refused,
// in its own environment and in another one, forges grants and answers, uses the grants of others, and then reports that it is done.
const trespass = `"""Changes an environment that it was never let into."""

def tries(function, args):
    for attempt in range(200):
        answer = run(function, args, on_error = "return", timeout = 30)
        if answer.ok or answer.code == "forbidden":
            return answer
        sleep(0.2)  # nothing could be found out now: something is down
    return answer

def forbidden(function, args):
    answer = tries(function, args)
    if answer.ok or answer.code != "forbidden":
        run("emit", {"type": "com.gitlab.cd.rollout.failed", "data": {"rollout_id": rollout["id"], "reason": "TRESPASS: %s: %s" % (function, answer)}})
        fail(function)

def forge(kind, data):
    if run("emit", {"type": "com.gitlab.cd." + kind, "data": {"rollout_id": rollout["id"]} | data}, on_error = "return").ok:
        run("emit", {"type": "com.gitlab.cd.rollout.failed", "data": {"rollout_id": rollout["id"], "reason": "TRESPASS: emitted " + kind}})
        fail(kind)

def attempt():
    target = rollout["environments"][0]
    config, agent = target["application_environment"]["config"], target["config"]["cluster_agent_id"]
    application = {"agent_id": agent, "app_name": config["application"], "app_namespace": config["namespace"]}
    for path in [config["path"] + "/api.yaml", "other.yaml"]:
        forbidden("git.commit", {
            "repo_url": config["repository_url"], "branch": config["branch"], "path": path, "content": "trespassed", "message": "trespassed",
        })
    forbidden("argo.sync", application | {"revision": "main"})
    forbidden("argo.terminate", application | {"operation": "1"})
    for place in [config["destination_namespace"], "kube-system"]:
        service = {"agent_id": agent, "rollout_name": "api", "rollout_namespace": place}
        forbidden("argo.promote", service | {"step_index": 0})
        forbidden("argo.abort", service)
        forbidden("argo.retry", service)

target = rollout["environments"][0]
forge("rollout.passage_granted", {"gate_id": target["name"], "environment_id": target["id"], "principal_type": "system"})
forge("approval.resolved", {"gate_id": target["name"], "resolution": "approved", "principal_type": "user"})
forge("rollout.abort_requested", {"reason": "forged"})
attempt()
gather(spawn(attempt))
run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": rollout["id"]}})
run("emit", {"type": "com.gitlab.cd.rollout.healthy", "data": {"rollout_id": rollout["id"]}})
`

// hostileDriver writes a folder of drivers with the built-in one, whose deploy program is another, and returns the setting of the domain
// service that names the folder.
func hostileDriver(t *testing.T) (setting string) {
	t.Helper()
	dir := t.TempDir()
	own := filepath.Join(dir, "hostile")
	if err := os.CopyFS(own, os.DirFS("../../../pkg/driver/bundles/argo-rollouts")); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(own, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(manifest), `"ref": "argo-rollouts"`, `"ref": "hostile"`, 1)
	for name, text := range map[string]string{"manifest.json": changed, "v1/deploy.star": trespass} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "LOCKSTEP_DOMAIN_DRIVER_DIR=" + dir
}

// hostileScenario is an application whose environment has the hostile driver.
func hostileScenario() demo.Scenario {
	s := oneStage()
	s.Application = "trespasser"
	s.Stages[0].Environment, s.Stages[0].Tier, s.Stages[0].Gates = "vault", "PRODUCTION", nil
	return s
}

// prepareHostile makes the application of the hostile driver, and returns its first version.
func (w *world) prepareHostile(ctx context.Context) (set client.VersionSet, err error) {
	if err := w.CreateRepository(ctx); err != nil {
		return set, err
	}
	if err := w.CreateApplication(ctx); err != nil {
		return set, err
	}
	_, err = w.API.CreateEnvironment(ctx, client.EnvironmentInput{
		Name: "vault", Tier: "PRODUCTION", DriverRef: "hostile@1", DriverConfig: map[string]any{"cluster_agent_id": stack.AgentID},
	})
	if err != nil {
		return set, err
	}
	if err := w.AwaitEnvironments(ctx); err != nil {
		return set, err
	}
	if err := w.CreatePipeline(ctx); err != nil {
		return set, err
	}
	return w.Push(ctx, "1.0.0", nil)
}

// trespasses has the hostile driver carry out a rollout, and checks that nothing left the engine, and that the record shows the breach.
func (w *world) trespasses(ctx context.Context, set client.VersionSet) (client.Rollout, error) {
	before, err := w.Commits(ctx)
	if err != nil {
		return client.Rollout{}, err
	}
	r, err := w.Roll(ctx, set.ID, "a hostile driver")
	if err != nil {
		return r, err
	}
	err = w.Await(ctx, "the rollout of the hostile driver to end", func() (string, bool, error) {
		found, err := w.API.Rollout(ctx, r.ID)
		if err == nil {
			r = found
		}
		return found.State, found.State == "FAILED" || found.State == "COMPLETED" || found.State == "CANCELLED", err
	})
	if err != nil {
		return r, err
	}
	reason := ""
	for _, row := range r.Journal {
		if row.Subject == r.ID && row.Event == "fail" {
			reason = row.Reason
		}
		if row.Event == "pass_gate" {
			return r, fmt.Errorf("%s: passage %q was opened, and nobody requested it", r.ID, row.GateID)
		}
	}
	if r.State != "FAILED" || !strings.HasPrefix(reason, "breach: ") {
		return r, fmt.Errorf("%s: found it %s, %q; expected it failed as a breach", r.ID, r.State, reason)
	}
	return r, w.ExpectCommits(ctx, before, map[string]int{})
}

// A driver that never requests a passage, tries every changing Function, forges grants and then reports its end changes
// nothing, and the record shows a breach. `make chaos` has the same beside honest rollouts.
func TestAHostileDriverChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, w := start(t, hostileScenario(), hostileDriver(t))
	set, err := w.prepareHostile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.trespasses(ctx, set)
	if err != nil {
		t.Fatal(err)
	}
	check, err := w.API.CheckJournal(ctx, func(client.JournalCheck) {})
	if err != nil || len(check.Differences) == 0 || !strings.Contains(check.Differences[0].Problem, "breach") {
		t.Errorf("the check of the journal of %s: got %+v, %v; expected the breach", r.ID, check.Differences, err)
	}
}

// hostileBeside is the hostile application on the stack of others.
func (w *world) hostileBeside() *world {
	other := &world{World: demo.NewWorld(w.stack, hostileScenario(), clock.System()), stack: w.stack}
	other.Patience = w.Patience
	return other
}
