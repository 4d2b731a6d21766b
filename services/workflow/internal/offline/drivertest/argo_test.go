package drivertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function"
)

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
	// restarts reports whether it has been retried, and the controller has not looked since.
	restarts bool
	seen     bool
	// breaks is how long after its last step it fails where it stands; 0 for never.
	breaks time.Duration
	// strategy is spec.strategy, and active the version that a blue-green one serves.
	strategy object
	active   string
	// pods are the containers as text, which decide whether there is a new version.
	pods       string
	containers []object
}

// steps are setWeight and pause by turns.
func (r *rollout) steps() []any {
	var steps []any
	for _, w := range r.weights {
		steps = append(steps, object{"setWeight": w}, object{"pause": object{}})
	}
	return steps
}

// apply is what Argo CD does with new pods or new steps.
func (r *rollout) apply(now time.Time, containers []object, weights []int64) {
	text, err := json.Marshal(containers)
	if err != nil {
		panic(err)
	}
	image := containers[0]["image"].(string)
	if r.pods == "" && image == r.image {
		r.pods = string(text) // the test has said what runs by its image alone
	}
	if string(text) == r.pods && slices.Equal(weights, r.weights) {
		return
	}
	hash := "hash-" + image
	if image == r.image && string(text) != r.pods {
		hash += "-" + strconv.Itoa(len(text))
	}
	r.generation++
	r.image, r.containers, r.pods, r.weights, r.current, r.seen = image, containers, string(text), weights, hash, false
	r.step, r.paused, r.degraded, r.changed = 0, false, "", now
	if r.stable == "" || r.stable == r.current {
		r.step, r.active = int64(2*len(weights)), r.current // the first version, and a rollback to the stable one, skip the steps
	}
}

func (r *rollout) blueGreen() bool { return r.strategy["blueGreen"] != nil }

// move lets the controller act at the time it is looked at.
func (r *rollout) move(now time.Time) {
	r.seen = r.seen || now.Sub(r.changed) >= time.Second
	if r.paused && r.breaks > 0 && now.Sub(r.changed) >= r.breaks {
		r.paused, r.degraded = false, "pods crash"
	}
	if !r.seen || r.paused || r.degraded != "" || now.Sub(r.changed) < r.pace {
		return
	}
	n := int64(2 * len(r.weights))
	switch {
	case r.blueGreen() && r.active != r.current && r.failsAt > 0:
		r.degraded = "ProgressDeadlineExceeded"
	case r.blueGreen() && r.active != r.current:
		r.paused = true
	case r.step >= n:
		r.stable = r.current
	case r.failsAt > 0 && r.weights[r.step/2] >= r.failsAt:
		r.degraded = "ProgressDeadlineExceeded"
	default:
		r.step, r.paused = r.step|1, true
	}
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
	case r.paused && r.blueGreen():
		phase, conditions = "Paused", []any{object{"reason": "BlueGreenPause"}}
	case r.paused:
		phase, conditions = "Paused", []any{object{"reason": "CanaryPauseStep"}}
	case r.stable == r.current:
		phase, updated = "Healthy", 2
	}
	containers := []any{object{"name": r.name, "image": r.image}}
	if len(r.containers) > 1 {
		containers = nil
		for _, c := range r.containers {
			containers = append(containers, c)
		}
	}
	strategy := r.strategy
	if !r.blueGreen() {
		strategy = object{"canary": object{"steps": r.steps()}}
	}
	return object{
		"found": true, "kind": "Rollout",
		"metadata": object{"name": r.name, "namespace": r.namespace, "generation": r.generation},
		"spec": object{
			"replicas": 2, "strategy": strategy,
			"template": object{"spec": object{"containers": containers}},
		},
		"status": object{
			"observedGeneration": strconv.FormatInt(observed, 10), "phase": phase, "message": r.degraded,
			"currentStepIndex": r.step, "currentPodHash": r.current, "stableRS": r.stable, "pauseConditions": conditions,
			"updatedReplicas": updated, "availableReplicas": 2, "blueGreen": object{"activeSelector": r.active},
		},
	}
}

// ours carries out a Function of the workflow service that needs nobody else.
func (w *world) ours(name string, args object) (any, *history.FunctionError) {
	for _, f := range function.All(nil, nil, nil) {
		if f.Name() != name || !strings.HasPrefix(name, "manifest.") && name != "template.render" {
			continue
		}
		if w.older && name == "manifest.redact" {
			break
		}
		value, err := f.Call(w.t.Context(), activity.Call{Args: args})
		if err != nil {
			return nil, history.AsFunctionError(err)
		}
		if w.older && name == "template.render" {
			delete(value.(object), "digest")
		}
		return value, nil
	}
	return nil, &history.FunctionError{Code: history.CodeUnknownFunction, Message: name}
}

// manifestOf is a Rollout of an image, with steps that are not those of any pipeline.
func manifestOf(name, image string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: " + name +
		"}\nspec:\n  strategy: {canary: {steps: [{setWeight: 1}]}}\n" +
		"  template: {spec: {containers: [{name: " + name + ", image: \"" + image + "\"}]}}\n"
}

// sync is Argo CD: everything in the folder goes into the cluster, rendered as the overrides want it.
func (w *world) sync(args object) (any, *history.FunctionError) {
	if args["revision"] != w.head {
		return nil, &history.FunctionError{Code: "sync_failed", Message: "not the head"}
	}
	if w.hooks != nil {
		return w.hooks.sync(w, args)
	}
	w.applyAll(args)
	return object{"revision": w.head, "phase": "Succeeded"}, nil
}

// applyAll brings everything in the folder into the cluster.
func (w *world) applyAll(args object) {
	w.record("sync: %s/%s%s", args["app_namespace"], args["app_name"], w.overridden(args))
	source := args["source"].(object)
	var objects []object
	for _, path := range slices.Sorted(maps.Keys(w.files)) {
		if strings.HasPrefix(path, source["path"].(string)+"/") {
			objects = append(objects, w.decode(w.files[path])...)
		}
	}
	for _, o := range w.render(objects, args) {
		if o["kind"] == "Rollout" {
			w.put(source["destination_namespace"].(string), o, objects)
		}
	}
}

func (w *world) overridden(args object) string {
	if args["overrides"] == nil {
		return ""
	}
	text, err := json.Marshal(args["overrides"])
	if err != nil {
		w.t.Fatal(err)
	}
	return " with " + string(text)
}

// decode reads all documents, with numbers as JSON has them.
func (w *world) decode(text string) []object {
	w.t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var all []object
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			w.t.Fatal(err)
		}
		encoded, err := json.Marshal(o)
		if err != nil {
			w.t.Fatal(err)
		}
		var plain object
		if err := json.Unmarshal(encoded, &plain); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, plain)
	}
}

// render does what Kustomize and Helm do with images and patches, as far as the tests go.
func (w *world) render(objects []object, args object) []object {
	overrides, _ := args["overrides"].(object)
	if w.rendered != nil {
		values := object{}
		for _, o := range objects {
			merge(values, o)
		}
		if helm, ok := overrides["helm"].(object); ok {
			merge(values, helm["valuesObject"].(object))
		}
		return w.decode(w.rendered(values))
	}
	images := map[string]string{}
	for _, o := range objects {
		entries, _ := o["images"].([]any)
		for _, e := range entries {
			entry := e.(object)
			if entry["digest"] != nil {
				images[entry["name"].(string)] = fmt.Sprintf("%v@%v", entry["newName"], entry["digest"])
			}
		}
	}
	kustomize, _ := overrides["kustomize"].(object)
	given, _ := kustomize["images"].([]any)
	for _, i := range given {
		name, reference, _ := strings.Cut(i.(string), "=")
		images[name] = reference
	}
	for _, o := range objects {
		for _, c := range containers(o) {
			if with := images[c["image"].(string)]; with != "" {
				c["image"] = with
			}
		}
		patches, _ := kustomize["patches"].([]any)
		for _, p := range patches {
			var patch object
			if err := json.Unmarshal([]byte(p.(object)["patch"].(string)), &patch); err != nil {
				w.t.Fatal(err)
			}
			if o["kind"] == patch["kind"] && name(o) == name(patch) {
				merge(o, patch)
			}
		}
	}
	return objects
}

// merge is a JSON merge patch.
func merge(into, patch object) {
	for key, v := range patch {
		inner, ok := v.(object)
		under, isObject := into[key].(object)
		if ok && isObject {
			merge(under, inner)
			continue
		}
		into[key] = v
	}
}

func name(o object) string { return o["metadata"].(object)["name"].(string) }

func containers(o object) []object {
	spec, _ := o["spec"].(object)
	template, _ := spec["template"].(object)
	pod, _ := template["spec"].(object)
	list, _ := pod["containers"].([]any)
	var all []object
	for _, c := range list {
		all = append(all, c.(object))
	}
	return all
}

// put applies one Rollout, with the pods of the object that it refers to, if it does.
func (w *world) put(namespace string, o object, all []object) {
	key := namespace + "/" + name(o)
	r := w.rollouts[key]
	if r == nil {
		r = &rollout{namespace: namespace, name: name(o), pace: 2 * time.Second}
		w.rollouts[key] = r
	}
	pods := o
	if ref, ok := o["spec"].(object)["workloadRef"].(object); ok {
		for _, each := range all {
			if each["kind"] == ref["kind"] && name(each) == ref["name"] {
				pods = each
			}
		}
	}
	strategy, _ := o["spec"].(object)["strategy"].(object)
	canary, _ := strategy["canary"].(object)
	steps, _ := canary["steps"].([]any)
	var weights []int64
	for _, step := range steps {
		if weight, ok := step.(object)["setWeight"].(float64); ok {
			weights = append(weights, int64(weight))
		}
	}
	r.strategy = strategy
	r.apply(w.now, containers(pods), weights)
}

func (w *world) promote(args object) (any, *history.FunctionError) {
	r := w.rollouts[args["rollout_namespace"].(string)+"/"+args["rollout_name"].(string)]
	step := int64(args["step_index"].(float64))
	if args["pod_hash"] != r.current {
		return nil, &history.FunctionError{Code: "conflict", Message: "another pod hash"}
	}
	if r.blueGreen() && r.paused {
		w.record("promote: %s", r.name)
		r.paused, r.active, r.changed = false, r.current, w.now
		return object{"promoted": true, "current_step_index": step}, nil
	}
	if r.step != step || !r.paused {
		return object{"promoted": false, "current_step_index": r.step}, nil
	}
	w.record("promote: %s past %d", r.name, r.weights[step/2])
	r.paused, r.step, r.changed = false, step+1, w.now
	return object{"promoted": true, "current_step_index": step}, nil
}

// retry takes back an abort.
func (w *world) retry(args object) any {
	r := w.rollouts[args["rollout_namespace"].(string)+"/"+args["rollout_name"].(string)]
	w.record("retry: %s", r.name)
	if r.degraded != "RolloutAborted" {
		return object{"retried": false}
	}
	r.restarts, r.step, r.changed = true, 0, w.now
	return object{"retried": true}
}

func (w *world) abort(args object) (any, *history.FunctionError) {
	r := w.rollouts[args["rollout_namespace"].(string)+"/"+args["rollout_name"].(string)]
	if hash := args["pod_hash"]; hash != nil && hash != r.current {
		return nil, &history.FunctionError{Code: "conflict", Message: "another pod hash"}
	}
	if r.stable == r.current {
		return object{"aborted": false}, nil
	}
	w.record("abort: %s", r.name)
	r.paused, r.degraded = false, "RolloutAborted"
	return object{"aborted": true}, nil
}
