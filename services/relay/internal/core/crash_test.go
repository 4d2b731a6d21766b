package core

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// argo is one object with the controller that owns it. It counts the effects on it.
type argo struct {
	object  Object
	version int
	// effects counts syncs that were started, writes of a status, and tasks that were created or stopped.
	effects int
}

func (a *argo) Get(_ context.Context, ref Ref) (Object, error) {
	if a.object == nil {
		return nil, fault.New(fault.NotFound, "%s does not exist", ref)
	}
	if operation := a.object.object("operation"); operation != nil { // the controller executes it
		delete(a.object, "operation")
		a.object["status"] = map[string]any{"operationState": map[string]any{
			"phase": "Succeeded", "operation": map[string]any(operation),
			"syncResult": map[string]any{"revision": operation.text("sync", "revision")},
		}}
		a.touch()
	}
	return maps.Clone(a.object), nil
}

func (*argo) List(context.Context, Selection, int) ([]Object, bool, error) { return nil, false, nil }

func (a *argo) touch() {
	a.version++
	meta := maps.Clone(a.object.object("metadata"))
	meta["resourceVersion"] = fmt.Sprint(a.version)
	a.object["metadata"] = map[string]any(meta)
}

func (a *argo) Create(_ context.Context, ref Ref, o Object) error {
	if a.object != nil {
		return fault.New(fault.Conflict, "%s exists", ref)
	}
	a.object = maps.Clone(o)
	if ref.Kind.Kind == "Workflow" || ref.Kind.Kind == "Job" {
		a.effects++
	}
	a.touch()
	return nil
}

func (a *argo) Patch(_ context.Context, ref Ref, patch Object, status bool) error {
	if patch.resourceVersion() != a.object.resourceVersion() {
		return fault.New(fault.Conflict, "%s has changed meanwhile", ref)
	}
	a.effects++
	if phase := patch.text("status", "operationState", "phase"); phase == phaseTerminating { // the controller ends it as failed
		now := maps.Clone(a.object.object("status", "operationState"))
		now["phase"] = "Failed"
		a.object["status"] = map[string]any{"operationState": map[string]any(now)}
		a.touch()
		return nil
	}
	if kind := a.object.text("kind"); kind == "Workflow" || kind == "Job" {
		spec, meta := maps.Clone(a.object.object("spec")), maps.Clone(a.object.object("metadata"))
		maps.Copy(spec, patch.object("spec"))
		maps.Copy(meta, patch.object("metadata"))
		a.object["spec"], a.object["metadata"] = map[string]any(spec), map[string]any(meta)
		a.touch()
		return nil
	}
	if !status {
		a.object["operation"] = patch.at("operation")
		a.touch()
		return nil
	}
	now := maps.Clone(a.object.object("status"))
	for field, value := range patch.object("status") {
		now[field] = value
		if field == "pauseConditions" { // the controller continues with the next step, and pauses there
			step, _ := a.object.number("status", "currentStepIndex")
			now["currentStepIndex"], now["pauseConditions"] = step+2, []any{map[string]any{"reason": "CanaryPauseStep"}}
		}
	}
	a.object["status"] = map[string]any(now)
	a.touch()
	return nil
}

func (*argo) DryCreate(_ context.Context, _ Ref, o Object) (Object, error) { return o, nil }

func (*argo) AwaitChange(ctx context.Context, _ Ref, _ string, atMost time.Duration) {
	_ = clock.Sleep(ctx, clock.System(), atMost)
}

// dying is the cluster of a relay that is killed at request number at: before the request is executed, or after that and before the
// response.
type dying struct {
	*argo
	at      int
	applied bool
	asked   int
	kill    context.CancelFunc
}

// dies reports whether this request is the last one; deed is whether it still takes effect.
func (d *dying) dies() (last, deed bool) {
	d.asked++
	if d.asked != d.at {
		return false, true
	}
	d.kill()
	return true, d.applied
}

var errKilled = fault.New(fault.Unavailable, "the relay is gone")

func (d *dying) Get(ctx context.Context, ref Ref) (Object, error) {
	if last, _ := d.dies(); last {
		return nil, errKilled
	}
	return d.argo.Get(ctx, ref)
}

func (d *dying) Create(ctx context.Context, ref Ref, o Object) error {
	last, deed := d.dies()
	if !deed {
		return errKilled
	}
	if err := d.argo.Create(ctx, ref, o); err != nil || !last {
		return err
	}
	return errKilled
}

func (d *dying) Patch(ctx context.Context, ref Ref, patch Object, status bool) error {
	last, deed := d.dies()
	if !deed {
		return errKilled
	}
	if err := d.argo.Patch(ctx, ref, patch, status); err != nil || !last {
		return err
	}
	return errKilled
}

// A relay that is killed at any request of any call does not answer; the engine repeats the call, and the next relay completes it, with
// exactly one effect (E24, E39).
func TestARelayThatIsKilledAnywhereLeavesOneEffect(t *testing.T) {
	t.Parallel()
	paused := `{"metadata":{"name":"api","generation":1,"resourceVersion":"0"},
		"spec":{"strategy":{"canary":{"steps":[{"setWeight":25},{"pause":{}},{"setWeight":50},{"pause":{}}]}}},
		"status":{"observedGeneration":"1","phase":"Paused","currentStepIndex":1,"currentPodHash":"new","stableRS":"old","pauseConditions":[{"reason":"CanaryPauseStep"}]ABORT}}`
	rollout := func(abort string) string {
		b := []byte(paused)
		return string(b[:len(b)-len("ABORT}}")]) + abort + "}}"
	}
	source := `,"source":{"repo_url":"http://git/shop.git","path":"staging","destination_namespace":"shop"}`
	of := `{"rollout_name":"api","rollout_namespace":"shop"`
	ours := `{"metadata":{"name":"shop","resourceVersion":"0","labels":{"app.kubernetes.io/managed-by":"lockstep"}},` + spec
	sync := `{"app_name":"shop","app_namespace":"argocd","revision":"` + revision + `"` + source
	task := func(kind, phase string) string {
		version := map[string]string{"Workflow": "argoproj.io/v1alpha1", "Job": "batch/v1"}[kind]
		return `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"migrate","namespace":"work","resourceVersion":"0","labels":{
			"app.kubernetes.io/managed-by":"lockstep","lockstep.dev/organization":"1","lockstep.dev/operation":"` + digestOf("1", "a") + `"}},
			"spec":{},"status":{"phase":"` + phase + `"}}`
	}
	begin := func(argument, version, kind string) string {
		return `{"namespace":"work","operation":"a","` + argument + `":{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"migrate"},"spec":{}}}`
	}
	const named = `{"namespace":"work","name":"migrate","operation":"a"}`
	for name, tc := range map[string]struct{ function, args, before string }{
		// R2-23, R2-31, D54: one Workflow and one Job, and one request to stop it.
		"workflow.submit":    {"workflow.submit", begin("workflow", "argoproj.io/v1alpha1", "Workflow"), ""},
		"workflow.stop":      {"workflow.stop", named, task("Workflow", "Running")},
		"workflow.terminate": {"workflow.terminate", named, task("Workflow", "Running")},
		"job.run":            {"job.run", begin("job", "batch/v1", "Job"), ""},
		"job.stop":           {"job.stop", named, task("Job", "")},

		"argo.sync, started": {FunctionSync, sync + `,"wait":"start","operation":"a"}`, ours + `}`},
		// Of an earlier rollout; Argo CD ends it meanwhile.
		"argo.sync, in place of an earlier one": {
			FunctionSync, sync + `,"wait":"start","operation":"b","supersede":true}`,
			ours + `,"operation":` + operationOf("a") + `}`,
		},
		"argo.terminate": {
			FunctionTerminate, `{"app_name":"shop","app_namespace":"argocd","operation":"a"}`,
			ours + `,` + stateOf("a", "Running", "") + `}`,
		},

		"argo.sync, absent": {FunctionSync, `{"app_name":"shop","app_namespace":"argocd","revision":"` + revision + `"` + source + `}`, ""},
		"argo.sync, there": {
			FunctionSync, `{"app_name":"shop","app_namespace":"argocd","revision":"` + revision + `"` + source + `}`,
			ours + `}`,
		},
		"argo.promote": {FunctionPromote, of + `,"step_index":1,"pod_hash":"new"}`, rollout("")},
		"argo.abort":   {FunctionAbort, of + `}`, rollout("")},
		"argo.retry":   {FunctionRetry, of + `}`, rollout(`,"abort":true`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				call := Call{ID: callID, Organization: "1", Function: tc.function, Args: json.RawMessage(tc.args)}
				limits := Limits{WorkflowNamespaces: []string{"work"}, JobNamespaces: []string{"work"}}
				run := func(ctx context.Context, c Cluster) Answer {
					call.Deadline = time.Now().Add(time.Minute)
					deps := RunnerDeps{Cluster: c, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Poll: time.Second, Limits: limits}
					return NewRunner(deps).Run(ctx, call)
				}
				for at := 1; ; at++ {
					killed := false
					for _, applied := range []bool{false, true} {
						world := &argo{object: object(t, tc.before)}
						ctx, kill := context.WithCancel(t.Context())
						first := &dying{argo: world, at: at, applied: applied, kill: kill}
						run(ctx, first)
						killed = first.asked >= at
						kill()
						if answer := run(t.Context(), world); answer.Err != nil {
							t.Fatalf("killed at request %d (carried out: %t), then: %v", at, applied, answer.Err)
						}
						if world.effects != 1 {
							t.Fatalf("killed at request %d (carried out: %t): %d effects, want 1", at, applied, world.effects)
						}
					}
					if !killed { // it had finished before
						if at < 2 {
							t.Fatal("nothing was asked of the cluster")
						}
						return
					}
				}
			})
		})
	}
}
