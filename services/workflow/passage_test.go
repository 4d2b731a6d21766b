package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/guard"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	declarations "github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// fakes are the world outside: what was committed, and what was sent to relays.
type fakes struct {
	mu      sync.Mutex
	effects []string
	service *control.Service
}

func (f *fakes) note(effect string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.effects = append(f.effects, effect)
}

func (f *fakes) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.effects...)
}

func (f *fakes) ReadFile(context.Context, int64, string, string, string) ([]byte, string, error) {
	return []byte("a"), "sha", nil
}

func (f *fakes) ReadTree(context.Context, activity.TreeRequest) (map[string][]byte, string, error) {
	return nil, "", nil
}

func (f *fakes) ReadDifference(context.Context, activity.DifferenceRequest) (activity.Difference, error) {
	return activity.Difference{}, nil
}

func (f *fakes) FindCommit(context.Context, int64, string, string, string, string) (activity.CommitInfo, error) {
	return activity.CommitInfo{}, nil
}

func (f *fakes) ReadCommit(context.Context, int64, string, string) (activity.CommitInfo, error) {
	return activity.CommitInfo{SHA: "sha"}, nil
}

func (f *fakes) Commit(context.Context, activity.CommitRequest) (string, error) {
	f.note("git.commit")
	return "sha", nil
}

func (f *fakes) Propose(context.Context, activity.ProposalRequest) (activity.Proposal, error) {
	f.note("git.propose")
	return activity.Proposal{}, nil
}

func (f *fakes) Merge(context.Context, activity.MergeRequest) (activity.Proposal, error) {
	f.note("git.merge")
	return activity.Proposal{}, nil
}

func (f *fakes) ReadProposal(context.Context, int64, string, int64) (activity.Proposal, error) {
	return activity.Proposal{}, nil
}

func (f *fakes) Withdraw(context.Context, int64, string, string, int64) (activity.Proposal, error) {
	f.note("git.withdraw")
	return activity.Proposal{}, nil
}

func (f *fakes) ReadBranch(context.Context, activity.BranchProposal) (activity.Proposal, error) {
	return activity.Proposal{}, nil
}

func (f *fakes) WithdrawBranch(context.Context, activity.BranchProposal) (activity.Proposal, error) {
	f.note("git.withdraw")
	return activity.Proposal{}, nil
}

func (f *fakes) ReadStatus(context.Context, int64, string, string) ([]activity.CommitStatus, error) {
	return nil, nil
}

func (f *fakes) SetStatus(context.Context, activity.StatusRequest) (activity.StatusReport, error) {
	f.note("git.set_status")
	return activity.StatusReport{}, nil
}

func (f *fakes) SetDeployment(context.Context, activity.DeploymentRequest) (activity.DeploymentReport, error) {
	f.note("git.set_deployment")
	return activity.DeploymentReport{}, nil
}

func (f *fakes) ReadChange(context.Context, activity.ChangeRequest) (activity.Change, error) {
	return activity.Change{}, nil
}

func (f *fakes) Comment(context.Context, activity.CommentRequest) (activity.CommentReport, error) {
	f.note("git.comment")
	return activity.CommentReport{}, nil
}

// outside are servers.
type outside struct{ *fakes }

func (o outside) Send(context.Context, activity.WebRequest) (activity.WebAnswer, error) {
	o.note("http.request")
	return activity.WebAnswer{Status: 200}, nil
}

func (o outside) SendMail(context.Context, activity.Mail) (activity.MailAnswer, error) {
	o.note("mail.send")
	return activity.MailAnswer{}, nil
}

func (outside) Pull(context.Context, activity.ChartRequest) (activity.Chart, error) {
	return activity.Chart{}, nil
}

func (o outside) Publish(context.Context, activity.SubjectMessage) error {
	o.note("nats.publish")
	return nil
}

func (f *fakes) Send(ctx context.Context, call agent.OutgoingCall) error {
	f.note(call.Function)
	return f.service.Answer(context.WithoutCancel(ctx), agent.Answer{Call: call.ID, Agent: call.Agent, Value: json.RawMessage(`{}`)})
}

// trespass tries every Function that changes something, in production, and fails unless each call is refused.
const trespass = `
def attempt():
    for c in calls:
        a = run(c["function"], c["args"], on_error = "return", timeout = 60)
        if a.ok or a.code != "forbidden":
            fail("%s was not refused: %s" % (c["function"], a))
`

// startsHostile is a program that has a child trespass, and startsProgram a statement of main that has one run a program.
func startsHostile(more, how string) string {
	return "def main(calls):\n    " + startsProgram("def main(calls):\n    for c in calls:\n        a = run(c[\"function\"], c[\"args\"], on_error = \"return\", timeout = 60)\n"+
		"        if a.ok or a.code != \"forbidden\":\n            fail(\"%s was not refused: %s\" % (c[\"function\"], a))\n", more, how)
}

func startsProgram(source, more, how string) string {
	return fmt.Sprintf(how, fmt.Sprintf("start_workflow(program = %q, inputs = {\"calls\": calls}%s)", source, more)) + "\n"
}

// No program changes an environment whose passage was not granted to its run, whichever Function it calls and however it gets
// there (D46).
// The Functions are those of the registry, so a new one is tried without a change here.
func TestAHostileProgramChangesNothing(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()},
		pgtest.Migration{Name: "workflow", FS: store.Migrations()})
	world, log, wall := &fakes{}, bustest.Log(t), clock.System()
	var runner *engine.Engine
	kept := store.New(store.Deps{
		Pool: pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {}, Met: func() {},
		Woken: func(woken engine.Woken) { runner.Wake(woken) }, Clock: wall, Log: log,
		ClaimEvent: func(context.Context, pgx.Tx, event.Event) (bool, error) { return true, nil },
	})
	registry, err := activity.NewFunctions(declarations.All(world, outside{world}, nil)...)
	if err != nil {
		t.Fatal(err)
	}
	guardian := guard.New(kept, registry, wall, log)
	catalogue := worker.NewCatalogue(kept, declarations.OfWorker, wall, log)
	registry.Add(catalogue)
	hub := worker.NewHub(worker.Deps{
		Store: kept, Catalogue: catalogue, Guard: guardian, Heartbeat: time.Minute, Poll: 20 * time.Millisecond, Clock: wall, Log: log,
	})
	scripts := script.New(script.Limits{})
	runner = engine.New(engine.Deps{
		Store: kept, Scripts: scripts, Functions: registry, Agents: agent.NewRegistry(declared{organization: 1}, wall, log), Guard: guardian,
		Offered: hub.Offered, Room: hub.Room, CheckEmit: events.CheckEmit, Clock: wall, Log: log, Settings: engine.Settings{
			Instance: "hostile", Lease: time.Hour, Poll: 20 * time.Millisecond, CallTimeout: time.Minute, WaitTimeout: time.Hour,
			Live: 10, Cache: 1 << 20, Activities: 10, History: 1000, Crashes: 3, Retention: time.Hour,
		},
	})
	world.service = control.NewService(kept, scripts, wall, runner)
	dispatcher := agent.Dispatcher{
		Store: kept, Sender: world, Guard: guardian, Answerer: world.service, Clock: wall, Log: log,
		Woken: runner.Calls(),
	}
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	parts.Go(func() { _ = dispatcher.Run(ctx) })
	parts.Go(func() { _ = runner.Run(ctx, func() {}) })
	// The Functions of a worker are guarded as those of Lockstep are.
	form := []worker.PlaceForm{{Agent: "/cluster/agent", Namespace: "/namespace"}}
	session, err := hub.Open(ctx, worker.Opening{Organization: 1, Prefix: "shop", Name: "worker", InFlight: 10, Functions: []worker.Declaration{
		{Name: "shop.deploy", Effect: "changes", Places: form}, {Name: "shop.undo", Effect: "takes_back", Places: form},
	}})
	if err != nil {
		t.Fatal(err)
	}
	parts.Go(func() { _ = session.Run(ctx) })
	parts.Go(func() {
		for {
			select {
			case m := <-session.Messages():
				world.note(m.Call.Function)
				_ = session.Answer(ctx, m.Call.ID, json.RawMessage(`{}`), nil)
			case <-ctx.Done():
				return
			}
		}
	})

	reports := 0
	report := func(c guard.Change) {
		t.Helper()
		reports++
		c.Organization = 1
		_, _, err := kept.ReceiveChange(t.Context(), event.Event{}, history.Event{
			Organization: 1, Source: event.SourceDomain, ID: fmt.Sprint(reports), Type: event.TypeRolloutAbortRequested,
			Data: []byte(`{}`), Time: c.At,
		}, c)
		if err != nil {
			t.Fatal(err)
		}
	}
	places := []activity.Place{
		{Agent: 7, Namespace: "shop"},
		{Agent: 7, Application: "argocd/shop"},
		{Repository: "https://git.example.com/shop"},
		{URL: "https://deploy.example.com/shop"},
	}
	report(guard.Change{Territory: &guard.Territory{Environment: 5, Name: "production", Sequence: 1, Protected: true, Places: places}})
	grant := func(workflow string) {
		report(guard.Change{Workflow: workflow, At: wall.Now(), Granted: &guard.Passage{Environment: 5, Places: places}})
	}

	object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
	args := map[string]map[string]any{
		"git.commit": {"repo_url": "https://git.example.com/shop", "branch": "main", "path": "a", "content": "a", "message": "a"},
		"git.merge": {
			"repo_url": "https://git.example.com/shop", "branch": "main", "path": "a", "content": "a", "message": "a", "number": 1, "head": "a",
		},
		"http.request": {"url": "http://Deploy.example.com:443/x/../SHOP/%61pi", "method": "POST"},
		"mail.send": {
			"server": "smtp://deploy.example.com/shop/api", "from": "a@example.com", "to": []any{"b@example.com"}, "message_id": "a@example.com",
			"subject": "a", "text": "a",
		},
		"nats.publish":    {"server": "nats://deploy.example.com", "subject": "shop", "message_id": "a", "json": "a"},
		"argo.sync":       {"app_name": "shop", "app_namespace": "argocd", "revision": "a"},
		"argo.terminate":  {"app_name": "shop", "app_namespace": "argocd", "operation": "a"},
		"workflow.submit": {"namespace": "shop", "workflow": map[string]any{"metadata": map[string]any{"name": "a"}}},
		"workflow.stop":   {"namespace": "shop", "name": "a"}, "workflow.terminate": {"namespace": "shop", "name": "a"},
		"job.run":      {"namespace": "shop", "job": map[string]any{"metadata": map[string]any{"generateName": "a-"}}},
		"job.stop":     {"namespace": "shop", "name": "a"},
		"argo.analyze": {"namespace": "shop", "templates": []any{map[string]any{"name": "a"}}}, "argo.end_analysis": {"namespace": "shop", "name": "a"},
		"argo.promote": {"rollout_name": "api", "rollout_namespace": "shop", "step_index": 0},
		"k8s.apply":    {"environment_id": 5, "namespace": "shop", "objects": []any{object}},
		"k8s.patch":    {"environment_id": 5, "namespace": "shop", "name": "a", "api_version": "v1", "kind": "ConfigMap", "patch": map[string]any{}},
		"k8s.delete":   {"environment_id": 5, "namespace": "shop", "name": "a", "api_version": "v1", "kind": "ConfigMap"},
	}
	var calls []map[string]any
	for _, name := range registry.Names() {
		f, _ := registry.Lookup(name)
		// A proposal and a status need no passage: TestProposals and TestPublications of the guard.
		if !f.Effect().Mutates() || f.Effect() == activity.Proposes || f.Effect() == activity.Publishes {
			continue
		}
		with := args[name]
		if with == nil {
			with = map[string]any{"rollout_name": "api", "rollout_namespace": "shop"}
		}
		if f.Location() == activity.Cluster {
			with["agent_id"] = 7
		}
		calls = append(calls, map[string]any{"function": name, "args": with})
	}
	ofWorker := map[string]any{"cluster": map[string]any{"agent": 7}, "namespace": "shop"}
	calls = append(calls, map[string]any{"function": "shop.deploy", "args": ofWorker}, map[string]any{"function": "shop.undo", "args": ofWorker})
	run := func(workflow, source string, calls []map[string]any) execution.Execution {
		t.Helper()
		inputs, err := json.Marshal(map[string]any{"calls": calls, "rollout": map[string]any{"passages": true}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := world.service.Start(t.Context(),
			execution.Start{Organization: 1, Workflow: workflow, Program: program.Program{Source: []byte(source)}, Inputs: inputs}); err != nil {
			t.Fatal(err)
		}
		for deadline := wall.Now().Add(within); ; {
			e, err := kept.Get(t.Context(), 1, workflow)
			if err != nil || e.State.Ended() || wall.Now().After(deadline) {
				return e
			}
			_ = clock.Sleep(t.Context(), wall, 10*time.Millisecond)
		}
	}
	forged := `
emitted = run("emit", {"type": "com.gitlab.cd.rollout.passage_granted", "data": {"rollout_id": 2, "gate_id": "production", "environment_id": 5}}, on_error = "return")
if emitted.ok:
    fail("a program has granted itself a passage")
attempt()
`
	grant("rollout-100") // another rollout's
	grant("rollout-6")
	report(guard.Change{Workflow: "rollout-6", At: wall.Now(), Revoked: true})
	for workflow, source := range map[string]string{
		"rollout-1": trespass + "attempt()\n",
		"rollout-2": trespass + forged,
		"rollout-3": trespass + "gather(spawn(attempt))\n",
		"rollout-4": trespass + "def again(left):\n    if left == 0:\n        attempt()\n        return\n    continue_with(again, left - 1)\n\ndef main():\n    again(1)\n",
		"rollout-6": trespass + "attempt()\n",
		"nightly":   trespass + "attempt()\n",
		"flow-1-1":  trespass + "gather(spawn(attempt))\n",
		// A child may change what the run that its line descends from may (issue 18, item 3), however deep, named or left alone it is.
		"rollout-9":  startsHostile("", "await_workflow(%s)"),
		"rollout-10": startsHostile(", id = \"rollout-100\"", "await_workflow(%s)"),
		"rollout-11": startsHostile(", detached = True", "await_workflow(%s)"),
		"rollout-12": "def main(calls):\n    " + startsProgram(startsHostile("", "await_workflow(%s)"), "", "await_workflow(%s)"),
		"nightly-2":  startsHostile("", "await_workflow(%s)"),
	} {
		if e := run(workflow, source, calls); e.State != execution.Completed {
			t.Errorf("%s: %s: %s", workflow, e.State, e.Error)
		}
	}
	// Arguments that do not name a place, or name it in another form, are no way around it.
	for i, args := range []map[string]any{
		{},
		{"namespace": "shop"},
		{"cluster": 7, "namespace": "shop"},
		{"cluster": map[string]any{"agent": "7"}, "namespace": "shop"},
		{"cluster": map[string]any{"agent": 7}, "namespace": []string{"shop"}},
		{"cluster": map[string]any{"agent": 7}, "namespace": ""},
	} {
		nameless := []map[string]any{{"function": "shop.deploy", "args": args}}
		if e := run(fmt.Sprintf("nameless-%d", i), trespass+"attempt()\n", nameless); e.State != execution.Completed {
			t.Errorf("%v: %s: %s", args, e.State, e.Error)
		}
	}
	if seen := world.seen(); len(seen) > 0 {
		t.Errorf("changed: %v", seen)
	}
	// After an abort only what takes back is executed; with the passage, everything is.
	grant("rollout-7")
	report(guard.Change{Workflow: "rollout-7", At: wall.Now(), Aborted: true})
	var forward, back []map[string]any
	for _, c := range calls {
		if f, _, _ := registry.Of(t.Context(), 1, c["function"].(string)); f.Effect() == activity.TakesBack {
			back = append(back, c)
		} else {
			forward = append(forward, c)
		}
	}
	if e := run("rollout-7", trespass+"attempt()\n", forward); e.State != execution.Completed || len(world.seen()) > 0 {
		t.Errorf("after an abort: %s: %s: %v", e.State, e.Error, world.seen())
	}
	grant("rollout-8")
	if e := run("rollout-8", "def go():\n    "+"for c in calls:\n        run(c[\"function\"], c[\"args\"])\ngo()\n",
		calls); e.State != execution.Completed || len(world.seen()) != len(calls) {
		t.Errorf("with its passage: %s: %s: %v", e.State, e.Error, world.seen())
	}
	before := len(world.seen())
	grant("rollout-13")
	child := "def main(calls):\n    for c in calls:\n        run(c[\"function\"], c[\"args\"])\n"
	if e := run("rollout-13", "def main(calls):\n    "+startsProgram(child, "", "await_workflow(%s)"), calls); e.State != execution.Completed ||
		len(world.seen()) != before+len(calls) {
		t.Errorf("a child with the passage of its parent: %s: %s: %v", e.State, e.Error, world.seen())
	}
	// What has the form of a child's id, and no parent in the record, is a run like any other: it has nobody's passages.
	before = len(world.seen())
	if e := run("child:1:rollout-13/0123456789abcdef01234567", trespass+"attempt()\n", calls); e.State != execution.Completed ||
		len(world.seen()) != before {
		t.Errorf("a forged child: %s: %s: %v", e.State, e.Error, world.seen())
	}
	if len(back) == 0 || len(forward) == 0 || guardian.Forbidden() < int64(7*len(calls)) {
		t.Errorf("%d and %d calls, %d refused", len(forward), len(back), guardian.Forbidden())
	}
}
