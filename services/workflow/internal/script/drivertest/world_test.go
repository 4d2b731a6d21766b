// Package drivertest runs the programs of the built-in drivers on the real interpreter, over a scripted world: a Git
// repository, an Argo CD that applies what is committed, and Rollouts that move by a virtual clock. After every step the
// history is replayed from the start, and has to lead to the same place.
package drivertest

import (
	"crypto/sha1" //nolint:gosec // commit ids look like this
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

type object = map[string]any

// world is everything that a program can reach.
type world struct {
	t        *testing.T
	now      time.Time
	files    map[string]string
	head     string
	commits  []string
	rollouts map[string]*rollout
	objects  map[string]object
	// answers are decisions by gate id, given when they are asked for.
	answers map[string]string
	// held is for how long somebody has paused the rollout at a gate.
	held map[string]time.Duration
	// fail makes a Function fail: by name, the error to answer with; once or for ever is the func's business.
	fail func(name string, args object) *core.FunctionError
	// see edits a Rollout as it is looked at.
	see func(*rollout, object)
	// story is what happened, one line for each thing that matters.
	story []string
	// waiting are answers that have been given, by gate.
	resolved []core.Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		t: t, now: time.Unix(1_774_432_800, 0).UTC(), head: sha("first"), files: map[string]string{},
		rollouts: map[string]*rollout{}, objects: map[string]object{}, answers: map[string]string{},
		held: map[string]time.Duration{},
		fail: func(string, object) *core.FunctionError { return nil },
		see:  func(*rollout, object) {},
	}
}

func sha(s string) string {
	sum := sha1.Sum([]byte(s)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// rollout is a simulated Argo Rollout.
type rollout struct {
	namespace, name, image string
	weights                []int64
	generation             int64
	stable, current        string
	step                   int64
	paused                 bool
	// changed is when the spec or the step changed last; pace is how long a step takes.
	changed time.Time
	pace    time.Duration
	// degraded is why it fails, at the weight failsAt.
	failsAt  int64
	degraded string
	seen     bool
}

// steps are setWeight and pause by turns.
func (r *rollout) steps() []any {
	var steps []any
	for _, w := range r.weights {
		steps = append(steps, object{"setWeight": w}, object{"pause": object{}})
	}
	return steps
}

// apply is what Argo CD does with a new template.
func (r *rollout) apply(now time.Time, image string, weights []int64) {
	if image == r.image && cmp.Equal(weights, r.weights) {
		return
	}
	r.generation++
	r.image, r.weights, r.current, r.seen = image, weights, "hash-"+image, false
	r.step, r.paused, r.degraded, r.changed = 0, false, "", now
	if r.stable == "" || r.stable == r.current {
		r.step = int64(2 * len(weights)) // the first version, and the way back to the stable one, skip the steps
	}
}

// move lets the controller act at the time it is looked at.
func (r *rollout) move(now time.Time) {
	r.seen = r.seen || now.Sub(r.changed) >= time.Second
	if !r.seen || r.paused || r.degraded != "" || now.Sub(r.changed) < r.pace {
		return
	}
	n := int64(2 * len(r.weights))
	if r.step >= n {
		r.stable = r.current
		return
	}
	if r.failsAt > 0 && r.weights[r.step/2] >= r.failsAt {
		r.degraded = "ProgressDeadlineExceeded"
		return
	}
	r.step, r.paused = r.step|1, true
}

// view is the object as the API shows it.
func (r *rollout) view() object {
	observed := r.generation
	if !r.seen {
		observed--
	}
	phase, conditions, updated := "Progressing", []any{}, int64(1)
	switch {
	case r.degraded != "":
		phase = "Degraded"
	case r.paused:
		phase, conditions = "Paused", []any{object{"reason": "CanaryPauseStep"}}
	case r.stable == r.current:
		phase, updated = "Healthy", 2
	}
	return object{
		"found": true, "kind": "Rollout",
		"metadata": object{"name": r.name, "namespace": r.namespace, "generation": r.generation},
		"spec": object{
			"replicas": 2,
			"strategy": object{"canary": object{"steps": r.steps()}},
			"template": object{"spec": object{"containers": []any{object{"name": r.name, "image": r.image}}}},
		},
		"status": object{
			"observedGeneration": strconv.FormatInt(observed, 10), "phase": phase, "message": r.degraded,
			"currentStepIndex": r.step, "currentPodHash": r.current, "stableRS": r.stable, "pauseConditions": conditions,
			"updatedReplicas": updated, "availableReplicas": 2,
		},
	}
}

// call answers a Function.
func (w *world) call(name string, args object) (any, *core.FunctionError) {
	if err := w.fail(name, args); err != nil {
		return nil, err
	}
	switch name {
	case "git.read_file":
		content, ok := w.files[args["path"].(string)]
		if !ok {
			return nil, &core.FunctionError{Code: "not_found", Message: fmt.Sprintf("no file %q at %q", args["path"], args["ref"])}
		}
		return object{"content": content, "sha": w.head}, nil
	case "manifest.pin":
		return w.pin(args)
	case "git.commit":
		return w.commit(args), nil
	case "argo.sync":
		return w.sync(args)
	case "argo.promote":
		return w.promote(args)
	case "k8s.get":
		return w.get(args), nil
	default:
		return nil, &core.FunctionError{Code: core.CodeUnknownFunction, Message: name}
	}
}

func (w *world) pin(args object) (any, *core.FunctionError) {
	r := manifest.Request{}
	for _, i := range args["images"].([]any) {
		r.Images = append(r.Images, manifest.Image{Container: i.(object)["container"].(string), Reference: i.(object)["reference"].(string)})
	}
	if gates, given := args["gates"].([]any); given {
		r.Gates = []int{}
		for _, g := range gates {
			r.Gates = append(r.Gates, int(g.(float64)))
		}
	}
	pinned, err := manifest.Pin([]byte(args["content"].(string)), r)
	if err != nil {
		return nil, &core.FunctionError{Code: core.CodeInvalid, Message: err.Error()}
	}
	return object{
		"content": string(pinned.Content), "digest": pinned.Digest, "rollout_name": pinned.RolloutName, "rollout_namespace": pinned.RolloutNamespace,
		"containers": pinned.Containers, "changed": pinned.Changed,
	}, nil
}

// workload is what Argo CD needs to know of a manifest.
type workload struct {
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct{ Containers []struct{ Image string } }
		}
		Strategy struct {
			Canary struct {
				Steps []struct {
					SetWeight int64 `yaml:"setWeight"`
				}
			}
		}
	}
}

// manifestOf is a Rollout of an image, with steps that are not those of any pipeline.
func manifestOf(name, image string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: " + name + "}\nspec:\n  strategy: {canary: {steps: [{setWeight: 1}]}}\n" +
		"  template: {spec: {containers: [{name: " + name + ", image: \"" + image + "\"}]}}\n"
}

func (w *world) commit(args object) any {
	changed := false
	for _, f := range args["files"].([]any) {
		file := f.(object)
		changed = changed || w.files[file["path"].(string)] != file["content"]
		w.files[file["path"].(string)] = file["content"].(string)
	}
	if changed {
		w.commits = append(w.commits, args["message"].(string))
		w.head = sha(w.head + args["message"].(string))
		w.tell("commit: %s (%d files) %v", args["message"], len(args["files"].([]any)), args["trailers"])
	}
	return w.head
}

func (w *world) sync(args object) (any, *core.FunctionError) {
	if args["revision"] != w.head {
		return nil, &core.FunctionError{Code: "sync_failed", Message: "not the head"}
	}
	w.tell("sync: %s/%s", args["app_namespace"], args["app_name"])
	namespace := args["source"].(object)["destination_namespace"].(string)
	for path, text := range w.files {
		if !strings.HasPrefix(path, args["source"].(object)["path"].(string)+"/") {
			continue
		}
		var m workload
		if err := yaml.Unmarshal([]byte(text), &m); err != nil {
			w.t.Fatal(err)
		}
		key := namespace + "/" + m.Metadata.Name
		r := w.rollouts[key]
		if r == nil {
			r = &rollout{namespace: namespace, name: m.Metadata.Name, pace: 2 * time.Second}
			w.rollouts[key] = r
		}
		var weights []int64
		for _, step := range m.Spec.Strategy.Canary.Steps {
			if step.SetWeight > 0 {
				weights = append(weights, step.SetWeight)
			}
		}
		r.apply(w.now, m.Spec.Template.Spec.Containers[0].Image, weights)
	}
	return object{"revision": w.head, "phase": "Succeeded"}, nil
}

func (w *world) promote(args object) (any, *core.FunctionError) {
	r := w.rollouts[args["rollout_namespace"].(string)+"/"+args["rollout_name"].(string)]
	step := int64(args["step_index"].(float64))
	if r.step != step || !r.paused {
		return object{"promoted": false, "current_step_index": r.step}, nil
	}
	if args["pod_hash"] != r.current {
		return nil, &core.FunctionError{Code: "conflict", Message: "another pod hash"}
	}
	w.tell("promote: %s past %d", r.name, r.weights[step/2])
	r.paused, r.step, r.changed = false, step+1, w.now
	return object{"promoted": true, "current_step_index": step}, nil
}

func (w *world) get(args object) any {
	if args["kind"] == "Rollout" {
		if r := w.rollouts[args["namespace"].(string)+"/"+args["name"].(string)]; r != nil {
			r.move(w.now)
			o := r.view()
			w.see(r, o)
			return o
		}
	}
	if o := w.objects[fmt.Sprintf("%s %s/%s", args["kind"], args["namespace"], args["name"])]; o != nil {
		seen := maps.Clone(o)
		seen["found"] = true
		return seen
	}
	return object{"found": false}
}

// emitted tells the story of an event, and answers a question if the test wants it answered.
func (w *world) emitted(e core.Emit) {
	var data object
	if err := json.Unmarshal(e.Data, &data); err != nil {
		w.t.Fatal(err)
	}
	line := strings.TrimPrefix(e.Type, "com.gitlab.cd.")
	for _, key := range []string{"environment_id", "application_environment_id", "deployment_id", "gate_id", "weight", "rollout_name", "rollout_namespace", "reason"} {
		if v, ok := data[key]; ok && v != "" {
			line += fmt.Sprintf(" %s=%v", key, v)
		}
	}
	if e.Type == event.TypeRolloutPassageRequested {
		w.passage(data)
		return
	}
	w.tell("%s", line)
	if e.Type != event.TypeApprovalRequested {
		return
	}
	resolution, ok := w.answers[data["gate_id"].(string)]
	if !ok {
		return
	}
	answer, err := json.Marshal(object{"rollout_id": data["rollout_id"], "gate_id": data["gate_id"], "resolution": resolution, "principal_type": "user", "reason": "because"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.resolved = append(w.resolved, core.Event{Type: event.TypeApprovalResolved, ID: "answer", Data: answer, Time: w.now})
}

// passage lets the rollout past a gate, when it is not held there any more. Only a hold is worth a line.
func (w *world) passage(data object) {
	held := w.held[data["gate_id"].(string)]
	if held > 0 {
		w.tell("held at %v", data["gate_id"])
	}
	granted, err := json.Marshal(object{"rollout_id": data["rollout_id"], "gate_id": data["gate_id"]})
	if err != nil {
		w.t.Fatal(err)
	}
	w.resolved = append(w.resolved, core.Event{Type: event.TypeRolloutPassageGranted, ID: "passage", Data: granted, Time: w.now.Add(held)})
}

// program finds a workflow of the Argo driver.
func program(t *testing.T, workflow driver.Workflow) core.Program {
	t.Helper()
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := set.Get("argo-rollouts@1")
	if err != nil {
		t.Fatal(err)
	}
	p, err := bundle.Program(workflow)
	if err != nil {
		t.Fatal(err)
	}
	return core.Program{Source: p.Source, Modules: p.Modules}
}

var _ core.Scripts = (*script.Scripts)(nil)
