// Package drivertest runs the programs of the built-in drivers in the harness of `lockstep workflow test`, over a scripted world: a Git
// repository, an Argo CD that applies what is committed, and Rollouts that move by a virtual clock. Each test is made without crashes, and
// again with crashes at random, which have to lead to the same.
package drivertest

import (
	"crypto/sha1" //nolint:gosec // commit ids look like this
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

type object = map[string]any

// world is everything that a program can reach.
type world struct {
	t *testing.T
	// seed is that of the crashes; 0 for the one of the test.
	seed uint64
	// bundle is the driver whose programs run; nil is the built-in one.
	bundle   *driver.Bundle
	now      time.Time
	files    map[string]string
	head     string
	commits  []string
	rollouts map[string]*rollout
	objects  map[string]object
	// answers are decisions by gate id, given when a passage needs them; asks says which of the gates have an approval.
	answers   map[string]string
	approvals map[string]bool
	// held is for how long a member has paused the rollout at a gate.
	held map[string]time.Duration
	// grants counts those of each gate.
	grants map[string]int
	// asks are the verbs that a member uses some time after a line of the story: type of event, and how much later.
	asks map[string]map[string]time.Duration
	// asked is when the last of them was used.
	asked time.Time
	// fail makes a Function fail: by name, the error to answer with; once or for ever is the func's business.
	fail func(name string, args object) *history.FunctionError
	// hooks are those of the Application; nil for one whose sync ends at once.
	hooks *hooks
	// argo is Argo Workflows, for drivers that use it; nil for none.
	argo *argoWorkflows
	// plain is a cluster to which objects are applied; nil for none.
	plain *plainCluster
	// flux is Flux, which deploys the branch; nil for none.
	flux *fakeFlux
	// forge has pull requests; nil for none.
	forge *fakeForge
	// git is a repository at a server without pull requests; nil for files in memory.
	git *plainGit
	// compose is a machine with Docker Compose; nil for none.
	compose *composeServer
	// server answers requests; nil for none.
	server http.Handler
	// tasks are the jobs of pipelines; nil for none.
	tasks *cluster
	// see edits a Rollout as it is looked at.
	see func(*rollout, object)
	// rendered are the objects that a chart's values make, where there is a chart.
	rendered func(values object) string
	// story is what happened, one line for each thing that matters.
	story []string
	// difference is what git.compare answers.
	difference object
	// committed and previews are what was reported about commits and by previews.
	committed []event.DeploymentCommitted
	previews  []event.RolloutPreviewed
	submitted []event.DeploymentSubmitted
	// targets are what was reported about targets of fleets.
	targets []event.RolloutEnvironmentTargetEnded
	// log is what the program has printed, as JSON.
	log []string
	// resolved are answers that have been given, by gate.
	resolved []history.Event
	// watching lets programs watch; watches are the subjects of what they do, reported is what each watch has reported last. looks
	// counts k8s.get.
	watching bool
	watches  map[string]object
	reported map[string]string
	looks    int
	// wanted sees what the program waits for; nil for nobody.
	wanted func(history.Want)
	// older is a workflow service of the release before.
	older bool
	// patient tries calls of services again after a pause.
	patient bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		t: t, now: time.Unix(1_774_432_800, 0).UTC(), head: sha("first"), files: map[string]string{},
		rollouts: map[string]*rollout{}, objects: map[string]object{}, answers: map[string]string{},
		held: map[string]time.Duration{}, approvals: map[string]bool{}, grants: map[string]int{},
		watches: map[string]object{}, reported: map[string]string{},
		fail: func(string, object) *history.FunctionError { return nil },
		see:  func(*rollout, object) {},
	}
}

func sha(s string) string {
	sum := sha1.Sum([]byte(s)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

func (w *world) record(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// call answers a Function.
func (w *world) call(name string, args object) (any, *history.FunctionError) {
	if err := w.fail(name, args); err != nil {
		return nil, err
	}
	if w.tasks != nil && (w.argo == nil || !strings.HasPrefix(name, "workflow.")) {
		if value, err, known := w.tasks.call(w, name, args); known {
			return value, err
		}
	}
	if w.argo != nil {
		if value, err, known := w.argo.call(w, name, args); known {
			return value, err
		}
	}
	if w.plain != nil {
		if value, err, known := w.plain.call(w, name, args); known {
			return value, err
		}
	}
	if w.server != nil && name == "http.request" {
		return w.serve(w.server, args), nil
	}
	if w.flux != nil {
		if value, err, known := w.flux.call(w, name, args); known {
			return value, err
		}
	}
	if w.forge != nil {
		if value, err, known := w.forge.call(w, name, args); known {
			return value, err
		}
	}
	if w.git != nil {
		if value, err, known := w.git.call(w, name, args); known {
			return value, err
		}
	}
	switch name {
	case "git.read_file":
		content, ok := w.files[args["path"].(string)]
		if !ok {
			return nil, &history.FunctionError{Code: "not_found", Message: fmt.Sprintf("no file %q at %q", args["path"], args["ref"])}
		}
		return object{"content": content, "sha": w.head}, nil
	case "manifest.kustomize", "manifest.helm":
		return w.rendering(name, args)
	case "git.compare":
		return w.difference, nil
	case "git.commit":
		return w.commit(args), nil
	case "argo.sync":
		return w.sync(args)
	case "k8s.list":
		return w.list(args), nil
	case "argo.check":
		return object{"found": true, "managed": true}, nil
	case "argo.terminate":
		return w.hooks.terminate(w, args)
	case "argo.promote":
		return w.promote(args)
	case "k8s.get":
		w.looks++
		return w.get(args), nil
	case "argo.abort":
		return w.abort(args)
	case "argo.retry":
		return w.retry(args), nil
	case "k8s.watch":
		return w.watch(args)
	case "k8s.unwatch":
		delete(w.watches, args["watch"].(string))
		return object{"closed": true}, nil
	default:
		return w.ours(name, args)
	}
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
		w.record("commit: %s (%d files) %v", args["message"], len(args["files"].([]any)), args["trailers"])
	}
	return w.head
}

// list answers the objects of a kind whose labels are those asked for.
func (w *world) list(args object) any {
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		o := w.objects[key]
		labels, _ := o["metadata"].(object)["labels"].(object)
		name, value, some := strings.Cut(fmt.Sprint(args["labels"]), "=")
		if o["kind"] == args["kind"] && (!some || labels[name] == value) {
			items = append(items, o)
		}
	}
	return object{"items": items, "truncated": false}
}

func (w *world) get(args object) any {
	if args["kind"] == "Rollout" {
		if r := w.rollouts[args["namespace"].(string)+"/"+args["name"].(string)]; r != nil {
			r.move(w.now)
			o := r.view()
			if r.restarts { // the controller takes a look to notice
				r.restarts, r.degraded = false, ""
			}
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

// emitted adds an event to the story, and answers a question if the test wants it answered.
func (w *world) emitted(e history.Emit) {
	var data object
	if err := json.Unmarshal(e.Data, &data); err != nil {
		w.t.Fatal(err)
	}
	w.note(e)
	line := strings.TrimPrefix(e.Type, "com.gitlab.cd.")
	for _, key := range []string{
		"environment_id", "application_environment_id", "deployment_id", "gate_id", "weight", "rollout_name",
		"rollout_namespace", "reason",
	} {
		if v, ok := data[key]; ok && v != "" {
			line += fmt.Sprintf(" %s=%v", key, v)
		}
	}
	for kind, after := range w.asks[line] {
		body, err := json.Marshal(object{"rollout_id": 7, "reason": "because"})
		if err != nil {
			w.t.Fatal(err)
		}
		w.asked = w.now.Add(after)
		w.resolved = append(w.resolved, history.Event{Type: kind, Data: body, Time: w.asked})
	}
	delete(w.asks, line) // once
	if e.Type == event.TypeRolloutPassageRequested {
		w.passage(data)
		return
	}
	if e.Type == event.TypeDeploymentSubmitted && w.argo != nil {
		return // the line of the Workflow is enough; what is shown of it is in submitted
	}
	w.record("%s", line)
}

// note stores what is reported about changes in files.
func (w *world) note(e history.Emit) {
	var err error
	switch e.Type {
	case event.TypeDeploymentCommitted:
		w.committed = append(w.committed, event.DeploymentCommitted{})
		err = json.Unmarshal(e.Data, &w.committed[len(w.committed)-1])
	case event.TypeDeploymentSubmitted:
		w.submitted = append(w.submitted, event.DeploymentSubmitted{})
		err = json.Unmarshal(e.Data, &w.submitted[len(w.submitted)-1])
	case event.TypeRolloutEnvironmentTargetEnded:
		w.targets = append(w.targets, event.RolloutEnvironmentTargetEnded{})
		err = json.Unmarshal(e.Data, &w.targets[len(w.targets)-1])
	case event.TypeRolloutPreviewed:
		w.previews = append(w.previews, event.RolloutPreviewed{})
		err = json.Unmarshal(e.Data, &w.previews[len(w.previews)-1])
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// passage answers as the domain service does: with the passage when nothing is missing, else with a rejection, or not at all. Only an
// approval and a pause are worth a line.
func (w *world) passage(data object) {
	gate := data["gate_id"].(string)
	held := w.held[gate]
	if held > 0 {
		w.record("held at %v", gate)
	}
	if w.approvals[gate] {
		w.record("approval of %v: %s", gate, orNone(w.answers[gate]))
	}
	switch {
	case w.approvals[gate] && w.answers[gate] == "":
	case w.approvals[gate] && w.answers[gate] != "approved":
		w.answer(event.TypeApprovalResolved, 0, object{
			"rollout_id": data["rollout_id"], "gate_id": gate, "resolution": w.answers[gate], "principal_type": "user", "reason": "because",
		})
	default:
		// An approval that was given is an event as well, which is no answer yet.
		w.answer(event.TypeApprovalResolved, 0, object{
			"rollout_id": data["rollout_id"], "gate_id": gate, "resolution": "approved",
			"principal_type": "user",
		})
		w.grants[gate]++
		w.answer(event.TypeRolloutPassageGranted, held, object{"rollout_id": data["rollout_id"], "gate_id": gate, "attempt": w.grants[gate]})
	}
}

func orNone(answer string) string {
	if answer == "" {
		return "none"
	}
	return answer
}

// answer is an event that the program may wait for, some time from now.
func (w *world) answer(kind string, after time.Duration, data object) {
	body, err := json.Marshal(data)
	if err != nil {
		w.t.Fatal(err)
	}
	w.resolved = append(w.resolved, history.Event{Type: kind, Data: body, Time: w.now.Add(after)})
}

// pin finds the approvals of a pipeline and its environments, as the domain service does when it creates a rollout.
func (w *world) pin(inputs object) {
	r, ok := inputs["rollout"].(object)
	if !ok {
		return
	}
	for _, e := range r["environments"].([]any) {
		environment := e.(object)
		name := environment["name"].(string)
		w.approvals[name] = environment["approval"] != nil
		gates, _ := environment["gates"].([]any)
		for _, g := range gates {
			gate := g.(object)
			w.approvals[fmt.Sprintf("%s/%v", name, gate["weight"])] = gate["approval"] != nil
		}
	}
	if p, ok := inputs["pipeline"].(object); ok {
		for i, s := range p["steps"].([]any) {
			if step := s.(object); step["type"] == "approval" {
				name, named := step["name"].(string)
				if !named {
					name = fmt.Sprintf("step-%d", i)
				}
				w.approvals[name] = true
			}
		}
	}
}

// program finds a workflow of the Argo driver.
func (w *world) program(workflow driver.Workflow) program.Program {
	w.t.Helper()
	bundle := w.bundle
	if bundle == nil {
		set, err := driver.Embedded()
		if err != nil {
			w.t.Fatal(err)
		}
		if bundle, err = set.Get("argo-rollouts@1"); err != nil {
			w.t.Fatal(err)
		}
	}
	p, err := bundle.Program(workflow)
	if err != nil {
		w.t.Fatal(err)
	}
	return program.Program{Source: p.Source, Modules: p.Modules}
}

var _ offline.Outside = outside{}
