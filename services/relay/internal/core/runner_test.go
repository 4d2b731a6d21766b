package core

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// world is a cluster with one object. It is a fake: tests define what happens by functions.
type world struct {
	mu      sync.Mutex
	object  Object
	fail    []error // errors of the next requests
	patches int
	onPatch func(Object)
}

func (w *world) next() error {
	if len(w.fail) == 0 {
		return nil
	}
	err := w.fail[0]
	w.fail = w.fail[1:]
	return err
}

func (w *world) Get(_ context.Context, ref Ref) (Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.next(); err != nil {
		return nil, err
	}
	if w.object == nil {
		return nil, fault.New(fault.NotFound, "%s does not exist", ref)
	}
	return w.object, nil
}

func (w *world) List(_ context.Context, _ Selection, limit int) ([]Object, bool, error) {
	return []Object{w.object}[:min(1, limit)], true, nil
}

func (w *world) Create(_ context.Context, _ Ref, o Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.next(); err != nil {
		return err
	}
	w.object = o
	return nil
}

func (w *world) Patch(_ context.Context, _ Ref, patch Object, _ bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.next(); err != nil {
		return err
	}
	w.patches++
	w.onPatch(patch)
	return nil
}

func (*world) DryCreate(_ context.Context, _ Ref, o Object) (Object, error) { return o, nil }

func (w *world) AwaitChange(ctx context.Context, _ Ref, _ string, atMost time.Duration) {
	_ = clock.Sleep(ctx, clock.System(), atMost)
}

func runner(w *world) *Runner {
	return NewRunner(RunnerDeps{Cluster: w, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Poll: 5 * time.Second})
}

func call(function, args string) Call {
	return Call{ID: callID, Function: function, Args: json.RawMessage(args), Attempt: 2, Deadline: time.Now().Add(time.Minute)}
}

const syncArgs = `{"agent_id":42,"app_name":"shop","app_namespace":"argocd","revision":"` + revision + `","mode":"managed",
	"source":{"repo_url":"http://git/shop.git","path":"staging","destination_namespace":"shop"}}`

// finish ends an operation, as Argo CD does.
func (w *world) finish(phase string) func(Object) {
	return func(patch Object) {
		w.object["operation"] = nil
		w.object["status"] = map[string]any{"operationState": map[string]any{
			"phase": phase, "message": "as requested", "operation": patch["operation"],
			"syncResult": map[string]any{"revision": patch.text("operation", "sync", "revision")},
		}}
	}
}

func TestSyncCreatesThenSyncs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.onPatch = w.finish("Succeeded")
		got := runner(w).Run(t.Context(), call(FunctionSync, syncArgs))
		want := Answer{CallID: callID, Attempt: 2, Value: map[string]any{"revision": revision, "phase": "Succeeded"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
		again := runner(w).Run(t.Context(), call(FunctionSync, syncArgs))
		if diff := cmp.Diff(want, again); diff != "" || w.patches != 1 {
			t.Errorf("a repeat patched %d times (-want +got):\n%s", w.patches, diff)
		}
	})
}

func TestSyncSurvivesAnOutageAndConflicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := fault.New(fault.Unavailable, "away")
		changed := fault.New(fault.Conflict, "changed")
		w := &world{fail: []error{away, away, nil, changed, nil, nil, nil, changed}}
		w.onPatch = w.finish("Succeeded")
		if got := runner(w).Run(t.Context(), call(FunctionSync, syncArgs)); got.Err != nil || w.patches != 1 {
			t.Errorf("answer %v after %d patches", got.Err, w.patches)
		}
	})
}

func TestASyncThatTimesOutNamesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.onPatch = w.finish("Running")
		got := runner(w).Run(t.Context(), call(FunctionSync, syncArgs))
		if got.Err == nil || got.Err.Code != CodeTimeout || !strings.Contains(got.Err.Message, "phase Running") {
			t.Errorf("answer %+v", got)
		}
	})
}

func TestOneSyncOfAnApplicationAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.onPatch = w.finish("Running")
		r := runner(w)
		answers := make(chan Answer, 2)
		go func() { answers <- r.Run(t.Context(), call(FunctionSync, syncArgs)) }()
		synctest.Wait()
		second := call(FunctionSync, syncArgs)
		second.ID = "exec-2/0.1"
		go func() { answers <- r.Run(t.Context(), second) }()
		synctest.Wait()
		w.mu.Lock()
		patches := w.patches
		w.onPatch = w.finish("Succeeded")
		running, _ := w.object.at("status", "operationState").(map[string]any)
		running["phase"] = "Succeeded"
		w.mu.Unlock()
		if patches != 1 {
			t.Errorf("%d operations started at once", patches)
		}
		for range 2 {
			if a := <-answers; a.Err != nil {
				t.Errorf("call %s: %v", a.CallID, a.Err)
			}
		}
	})
}

func TestGet(t *testing.T) {
	t.Parallel()
	const args = `{"agent_id":42,"kind":"Rollout","namespace":"shop","name":"api"}`
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		if got := runner(w).Run(t.Context(), call(FunctionGet, args)); got.Err != nil || got.Value["found"] != false {
			t.Errorf("absent: %+v", got)
		}
		w.object = object(t, `{"kind":"Rollout","metadata":{"name":"api","managedFields":[{}],
			"annotations":{"a":"b","kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`)
		got := runner(w).Run(t.Context(), call(FunctionGet, args))
		want := map[string]any{
			"found": true, "kind": "Rollout",
			"metadata": map[string]any{"name": "api", "annotations": map[string]any{"a": "b"}},
		}
		if diff := cmp.Diff(want, got.Value); diff != "" {
			t.Errorf("value (-want +got):\n%s", diff)
		}
		w.object["data"] = strings.Repeat("x", maxValue)
		if got := runner(w).Run(t.Context(), call(FunctionGet, args)); got.Err == nil || got.Err.Code != CodeTooLarge {
			t.Errorf("large: %+v", got.Err)
		}
		w.fail = []error{fault.New(fault.Denied, "no"), fault.New(fault.Unavailable, "away"), context.DeadlineExceeded}
		for _, want := range []Error{
			{Code: CodeForbidden, Message: "no"},
			{Code: CodeUnreachable, Message: "away", Retryable: true},
			{Code: CodeInternal, Message: "the relay failed to execute this; its log has the reason"},
		} {
			if diff := cmp.Diff(&want, runner(w).Run(t.Context(), call(FunctionGet, args)).Err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		}
	})
}

func TestListReturnsTheRequestedFields(t *testing.T) {
	t.Parallel()
	w := &world{object: object(t, `{"kind":"Deployment","metadata":{"name":"argo-rollouts","namespace":"argo"},"spec":{"replicas":2},"status":{"readyReplicas":1}}`)}
	got := runner(w).Run(t.Context(), call(FunctionList,
		`{"agent_id":42,"kind":"Deployment","labels":"a=b","fields":["status.readyReplicas"]}`))
	want := map[string]any{"truncated": true, "items": []any{map[string]any{
		"metadata": map[string]any{"name": "argo-rollouts", "namespace": "argo"}, "status": map[string]any{"readyReplicas": 1.0},
	}}}
	if diff := cmp.Diff(want, got.Value); got.Err != nil || diff != "" {
		t.Errorf("error %v, value (-want +got):\n%s", got.Err, diff)
	}
}

func TestArgumentsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, function, args, want string }{
		{"unknown function", "argo.dance", `{}`, `function: found "argo.dance", expected one of argo.abort, argo.analyze, argo.check, argo.end_analysis, argo.promote, argo.retry, argo.sync, argo.terminate, http.request, job.logs, job.run, job.stop, k8s.apply, k8s.delete, k8s.get, k8s.health, k8s.list, k8s.logs, k8s.patch, workflow.logs, workflow.stop, workflow.submit, workflow.terminate`},
		{"no object", FunctionGet, `[]`, "arguments: expected a JSON object"},
		{"missing", FunctionGet, `{"kind":"Pod"}`, "name: missing, expected a non-empty string"},
		{"wrong type", FunctionGet, `{"kind":7,"name":"x"}`, "kind: found 7, expected a non-empty string"},
		{"not a name", FunctionGet, `{"kind":"Pod","name":"../../secrets"}`, `name: found "../../secrets", expected a Kubernetes name`},
		{
			"misspelt", FunctionGet, `{"kind":"Pod","name":"x","name_space":"y"}`,
			"name_space: unknown; expected only agent_id, api_version, kind, name, namespace",
		},
		{"a secret", FunctionGet, `{"kind":"Secret","name":"x"}`, `kind: found "Secret", whose values`},
		{"a list of secrets", FunctionList, `{"kind":"Secret","fields":["data"]}`, `kind: found "Secret", whose values`},
		{"a list of everything about everything", FunctionList, `{"kind":"Pod"}`, "fields: found none"},
		{"no operation", FunctionTerminate, `{"app_name":"a","app_namespace":"b"}`, "operation: missing, expected the id"},
		{"an operation that is no id", FunctionTerminate, `{"app_name":"a","app_namespace":"b","operation":"x y"}`, `operation: found "x y"`},
		{"a branch", FunctionSync, `{"app_name":"a","app_namespace":"b","revision":"main"}`, `revision: found "main", expected a full commit id`},
		{
			"unknown mode", FunctionSync, `{"app_name":"a","app_namespace":"b","revision":"` + revision + `","mode":"x"}`,
			`mode: found "x", expected one of managed, existing`,
		},
		{
			"inside source", FunctionSync, `{"app_name":"a","app_namespace":"b","revision":"` + revision + `","source":{"path":"p"}}`,
			"source.repo_url: missing, expected a non-empty string; source.destination_namespace: missing",
		},
		{
			"negative step", FunctionPromote, `{"rollout_name":"a","rollout_namespace":"b","step_index":-1}`,
			"step_index: found -1, expected a whole number of at least 0",
		},
		{"no step", FunctionPromote, `{"rollout_name":"a","rollout_namespace":"b"}`, "step_index: missing, expected a whole number"},
		{"step is no abort's business", FunctionAbort, `{"rollout_name":"a","rollout_namespace":"b","step_index":1}`, "step_index: unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := runner(&world{}).Run(t.Context(), call(tc.function, tc.args))
			if got.Err == nil || got.Err.Code != CodeInvalid || !strings.Contains(got.Err.Message, tc.want) {
				t.Errorf("error %v, want invalid: %s", got.Err, tc.want)
			}
		})
	}
}
