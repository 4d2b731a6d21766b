package drivertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// argoWorkflows plays Argo Workflows, behind a relay and as an Argo Server.
type argoWorkflows struct {
	all map[string]*workflow
	// takes is how long a Workflow runs, ends how it ends; by the name of its service, "" for the others.
	takes map[string]time.Duration
	ends  map[string]string
	// looks are the times at which a Workflow was looked at.
	looks []time.Time
	// answers are those of the server by method, which replace the regular one: status and body.
	answers map[string]func() (int, object)
	// away reports whether a status cannot be read now.
	away    func() bool
	created int
	// dry counts the dry runs.
	dry int
	// late are the Workflows that had ended when they were to be stopped.
	late []string
	// stoppedAs is the phase in which a Workflow that was stopped ends: Succeeded with continueOn; Failed by default.
	stoppedAs string
	// steps are how many more a Workflow has that succeeds.
	steps int
	// silent is when watches end, with an error; zero for never.
	silent time.Time
	// lost are names of Workflows whose submit creates them without an answer.
	lost map[string]bool
}

type workflow struct {
	object object
	began  time.Time
	takes  time.Duration
	ends   string
	// stopped is when it was stopped, and how; as is the phase in which it ends then.
	stopped time.Time
	how     string
	as      string
	steps   int
}

const workflowTemplate = `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata:
  generateName: deploy-{[ .deployment.slug ]}-
  labels: {team: shop, version: {[ .version.label | quote ]}}
spec:
  entrypoint: main
  arguments:
    parameters: [{name: image, value: {[ .version.reference | toJson ]}}]
  templates: [{name: main, container: {image: "{{workflow.parameters.image}}", args: [{[ .variables.colour | toJson ]}]}}]
`

// argoShop is an application of two services that are deployed by Workflows.
func argoShop(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if w.bundle, err = set.Get("argo-workflows@1"); err != nil {
		t.Fatal(err)
	}
	w.argo = &argoWorkflows{
		all: map[string]*workflow{}, takes: map[string]time.Duration{"": 40 * time.Second}, ends: map[string]string{"": "Succeeded"},
		answers: map[string]func() (int, object){},
	}
	return w
}

func workflowInputs(edit func(environment, config object)) object {
	return inputs(2, func(_, environment object) {
		config := object{"namespace": "work", "template": workflowTemplate, "variables": object{"colour": "red"}, "deadline": 600}
		environment["application_environment"] = object{"id": 5, "discovered": object{}, "config": config}
		environment["gates"] = []any{}
		if edit != nil {
			edit(environment, config)
		}
	})
}

// atServer makes the environment one of an Argo Server.
func atServer(environment, _ object) {
	environment["config"] = object{"access": "server", "server_url": "argo.example.com", "credential": "argo"}
}

func (a *argoWorkflows) create(w *world, o object, operation string) *workflow {
	meta := o["metadata"].(object)
	name := meta["name"].(string)
	service, _, _ := strings.Cut(strings.TrimPrefix(name, "deploy-"), "-")
	pick := func(all map[string]time.Duration) time.Duration {
		if d, own := all[service]; own {
			return d
		}
		return all[""]
	}
	ends := a.ends[""]
	if own, given := a.ends[service]; given {
		ends = own
	}
	meta["labels"].(object)["lockstep.dev/operation"] = operation
	a.all[name] = &workflow{object: o, began: w.now, takes: pick(a.takes), ends: ends, steps: a.steps}
	a.created++
	w.record("workflow: %s", name)
	return a.all[name]
}

// tried is what a dry run answers: the Workflow with what a cluster adds to it.
func (a *argoWorkflows) tried(o object) object {
	a.dry++
	all, meta, spec := maps.Clone(o), maps.Clone(o["metadata"].(object)), maps.Clone(o["spec"].(object))
	meta["uid"], meta["generation"], meta["creationTimestamp"] = fmt.Sprintf("uid-%d", a.dry), 1, fmt.Sprintf("time-%d", a.dry)
	meta["managedFields"] = []any{object{"time": a.dry}}
	spec["podPriorityClassName"] = "of the cluster"
	all["metadata"], all["spec"], all["status"] = meta, spec, object{}
	return all
}

// view is the Workflow now.
func (wf *workflow) view(now time.Time) object {
	o := maps.Clone(wf.object)
	status := object{"phase": "Running", "progress": "0/1"}
	stamp := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	switch {
	case !wf.stopped.IsZero():
		status = object{"phase": wf.as, "message": "Stopped with strategy '" + wf.how + "'"}
		spec := maps.Clone(wf.object["spec"].(object))
		spec["shutdown"] = map[string]string{"stop": "Stop", "terminate": "Terminate"}[wf.how]
		o["spec"] = spec
	case wf.takes > 0 && !now.Before(wf.began.Add(wf.takes)):
		status = object{"phase": wf.ends}
		began, ended := stamp(wf.began), stamp(wf.began.Add(wf.takes))
		status["startedAt"], status["finishedAt"] = began, ended
		node := func(id, kind, name, phase, from, to string) object {
			return object{"id": id, "type": kind, "name": id, "displayName": name, "phase": phase, "startedAt": from, "finishedAt": to}
		}
		if wf.ends == "Succeeded" {
			middle := stamp(wf.began.Add(wf.takes / 2))
			status["nodes"] = object{
				"a": node("root", "DAG", "deploy", "Succeeded", began, ended), "b": node("b", "Pod", "test", "Succeeded", middle, ended),
				"c": node("c", "Pod", "migrate", "Succeeded", began, middle), "d": node("d", "Skipped", "roll-back", "Omitted", ended, ended),
			}
			for i := range wf.steps {
				id := fmt.Sprintf("z%03d", i)
				status["nodes"].(object)[id] = node(id, "Pod", "größe-"+id, "Succeeded", ended, ended)
			}
			status["outputs"] = object{"parameters": []any{object{"name": "url", "value": "https://shop"}}}
		} else {
			status["message"] = "child 'main' failed"
			status["nodes"] = object{"n": object{"type": "Pod", "displayName": "migrate", "phase": "Failed", "message": "Error (exit code 3)", "startedAt": began, "finishedAt": ended}}
		}
	}
	o["status"] = status
	return o
}

func (a *argoWorkflows) call(w *world, name string, args object) (any, *history.FunctionError, bool) {
	switch name {
	case "workflow.submit":
		o := args["workflow"].(object)
		if dry, _ := args["dry_run"].(bool); dry {
			if a.all[o["metadata"].(object)["name"].(string)] != nil {
				return nil, &history.FunctionError{Code: "conflict", Message: "already exists"}, true
			}
			return object{"name": o["metadata"].(object)["name"], "namespace": args["namespace"], "workflow": a.tried(o)}, nil, true
		}
		id := o["metadata"].(object)["name"].(string)
		if a.all[id] == nil {
			a.create(w, o, args["operation"].(string))
		}
		if a.lost[id] {
			return nil, &history.FunctionError{Code: "timeout", Message: "no answer"}, true
		}
		return object{"name": id, "namespace": args["namespace"], "uid": "u", "phase": "Pending", "message": "", "ended": false}, nil, true
	case "k8s.list":
		if label := args["labels"].(string); strings.HasPrefix(label, "lockstep.dev/rollout=") {
			return a.listed(w, label)
		}
		a.looks = append(a.looks, w.now)
		if a.away != nil && a.away() {
			return nil, &history.FunctionError{Code: "unreachable", Message: "away"}, true
		}
		items := []any{}
		for _, id := range slices.Sorted(maps.Keys(a.all)) {
			if strings.HasSuffix(args["labels"].(string), "="+a.all[id].object["metadata"].(object)["labels"].(object)["lockstep.dev/deployment"].(string)) {
				items = append(items, a.all[id].view(w.now))
			}
		}
		return object{"items": items, "truncated": false}, nil, true
	case "k8s.get":
		o := a.all[args["name"].(string)].view(w.now)
		o["found"] = true
		return o, nil, true
	case "workflow.stop", "workflow.terminate":
		if phase := a.all[args["name"].(string)].view(w.now)["status"].(object)["phase"]; phase != "Running" {
			a.late = append(a.late, args["name"].(string))
			return object{"phase": phase, "ended": true}, nil, true
		}
		a.stop(w, args["name"].(string), strings.TrimPrefix(name, "workflow."))
		return object{"phase": "Running"}, nil, true
	case "workflow.logs":
		return object{"logs": []any{object{"pod": "p", "container": "main", "text": "no such table"}}, "truncated": false}, nil, true
	case "http.request":
		return a.http(w, args), nil, true
	default:
		return nil, nil, false
	}
}

// listed are all Workflows of a rollout, through the relay.
func (a *argoWorkflows) listed(w *world, label string) (any, *history.FunctionError, bool) {
	if a.away != nil && a.away() {
		return nil, &history.FunctionError{Code: "unreachable", Message: "away"}, true
	}
	key, value, _ := strings.Cut(label, "=")
	items := []any{}
	for _, id := range slices.Sorted(maps.Keys(a.all)) {
		if a.all[id].object["metadata"].(object)["labels"].(object)[key] == value {
			items = append(items, a.all[id].view(w.now))
		}
	}
	return object{"items": items, "truncated": false}, nil, true
}

func (a *argoWorkflows) stop(w *world, name, how string) {
	a.all[name].stopped, a.all[name].how, a.all[name].as = w.now, how, cmp.Or(a.stoppedAs, "Failed")
	w.record("%s: %s", how, name)
}

// http is the Argo Server, with the statuses that the real one answers with.
func (a *argoWorkflows) http(w *world, args object) object {
	answer := func(status int, body object) object {
		text, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		return object{"status": status, "ok": status/100 == 2, "headers": object{}, "json": body, "body": string(text)}
	}
	method, url := args["method"].(string), args["url"].(string)
	if args["credential"] != "argo" {
		return answer(401, object{"code": 16, "message": "token not valid"})
	}
	if a.answers[method] != nil {
		if status, body := a.answers[method](); status != 0 {
			return answer(status, body)
		}
	}
	rest, below := strings.CutPrefix(url, "https://argo.example.com/api/v1/workflows/work")
	switch {
	case url == "https://argo.example.com/api/v1/version":
		return answer(200, object{"version": "v3.7.4"})
	case !below:
		return answer(403, object{"code": 7, "message": "no rights"})
	case method == "POST":
		body := args["json"].(object)
		o := body["workflow"].(object)
		meta := o["metadata"].(object)
		if dry, _ := body["serverDryRun"].(bool); dry && a.all[meta["name"].(string)] == nil {
			return answer(200, a.tried(o))
		}
		if a.all[meta["name"].(string)] != nil {
			return answer(409, object{"code": 6, "message": "already exists"})
		}
		a.create(w, o, meta["labels"].(object)["lockstep.dev/operation"].(string))
		return answer(200, o)
	}
	if selector, all := strings.CutPrefix(rest, "?listOptions.labelSelector="); all {
		label, _, _ := strings.Cut(selector, "&")
		found, failed, _ := a.listed(w, strings.NewReplacer("%2F", "/", "%3D", "=").Replace(label))
		if failed != nil {
			return answer(503, object{"message": "away"})
		}
		return answer(200, found.(object))
	}
	path, _, _ := strings.Cut(rest, "?")
	name, verb, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	wf := a.all[name]
	if wf == nil {
		return answer(404, object{"code": 5, "message": "not found"})
	}
	switch {
	case method == "PUT" && wf.view(w.now)["status"].(object)["phase"] != "Running":
		a.late = append(a.late, name)
		return answer(500, object{"code": 13, "message": "cannot shutdown a completed workflow"})
	case method == "PUT":
		a.stop(w, name, verb)
		return answer(200, object{})
	case verb == "log":
		return object{"status": 200, "ok": true, "headers": object{}, "json": nil, "body": `{"result":{"content":"no such table","podName":"p"}}` + "\n"}
	default:
		a.looks = append(a.looks, w.now)
		if a.away != nil && a.away() {
			return answer(503, object{"message": "away"})
		}
		return answer(200, wf.view(w.now))
	}
}

var bothWays = map[string]func(environment, config object){"relay": nil, "server": atServer}

// R2-21 to R2-28, R2-41: one Workflow for each deployment, through the relay and through the Argo Server.
func TestAWorkflowForEachDeployment(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
				t.Fatal(failure)
			}
			expect(t, w,
				"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
				"deployment.started deployment_id=12", "workflow: deploy-api-d11", "deployment.committed deployment_id=11",
				"workflow: deploy-worker-d12", "deployment.committed deployment_id=12",
				"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
				"rollout_environment.healthy environment_id=3", "rollout.healthy")
			o := w.argo.all["deploy-api-d11"].object
			labels := o["metadata"].(object)["labels"].(object)
			if labels["team"] != "shop" || labels["version"] != "2" || labels["app.kubernetes.io/managed-by"] != "lockstep" {
				t.Errorf("labels %v, expected the author's and ours (R2-18, R2-19)", labels)
			}
			text := fmt.Sprint(o["spec"])
			if !strings.Contains(text, image("api", 2)) || !strings.Contains(text, "{{workflow.parameters.image}}") || !strings.Contains(text, "red") {
				t.Errorf("spec %s, expected the version, the variable, and Argo's expression as it is (R2-11, R2-12)", text)
			}
			if !strings.Contains(strings.Join(w.log, "\n"), "output url = https://shop") {
				t.Errorf("log %q, expected the outputs", w.log)
			}
			// R2-25: the Workflow and its phase are shown with the deployment, and its page where there is one.
			page := ""
			if name == "server" {
				page = "https://argo.example.com/workflows/work/deploy-api-d11"
			}
			// R2-28: once it has ended, with the course of its steps.
			for phase, want := range map[int]string{0: "Submitted", 2: "Succeeded from 2026-03-25T10:00:00Z to 2026-03-25T10:00:40Z" +
				"; migrate Succeeded from 10:00:00Z to 10:00:20Z; test Succeeded from 10:00:20Z to 10:00:40Z; roll-back Omitted from 10:00:40Z to 10:00:40Z"} {
				if len(w.submitted) != 4 || w.submitted[phase] != (event.DeploymentSubmitted{
					DeploymentID: 11, Name: "deploy-api-d11", Namespace: "work", URL: page, Status: want,
				}) {
					t.Errorf("found %+v, expected both Workflows, submitted and succeeded", w.submitted)
				}
			}
			looked := map[time.Duration]bool{}
			for i, at := range w.argo.looks {
				for _, before := range w.argo.looks[:i] {
					looked[at.Sub(before)] = true
				}
			}
			for _, pause := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second} {
				if !looked[pause] {
					t.Errorf("no two looks are %s apart, expected 2, 4, 8 and 16 s (R2-26)", pause)
				}
			}
			if calls := len(w.argo.looks); calls > 20 {
				t.Errorf("%d looks at two Workflows of 40 s, expected at most 20", calls)
			}
		})
	}
}

// R2-30: a report over HTTP has its Workflow looked at at once, and decides nothing: one that says too much changes nothing, and without
// any the Workflow is polled.
func TestAReportLeadsToALook(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			w.argo.takes["api"], w.argo.takes["worker"] = 200*time.Second, 10*time.Second
			began := w.now
			for _, after := range []time.Duration{100 * time.Second, 201 * time.Second} { // early, as a forged one may be, and right behind the end
				w.answer(event.TypeDeploymentNudged, after, object{"rollout_id": 7, "deployment_id": 11, "watch": "deployment/11"})
			}
			w.answer(event.TypeDeploymentNudged, 50*time.Second, object{"rollout_id": 7, "deployment_id": 99, "watch": "deployment/99"})
			w.answer(event.TypeDeploymentNudged, 65*time.Second, object{"rollout_id": 8, "deployment_id": 11, "watch": "deployment/11"})
			if failure := w.run(driver.Deploy, workflowInputs(edit)); failure != "" {
				t.Fatal(failure)
			}
			at := map[time.Duration]bool{}
			for _, look := range w.argo.looks {
				at[look.Sub(began)] = true
			}
			if !at[100*time.Second] || !at[201*time.Second] || at[50*time.Second] || at[65*time.Second] {
				t.Errorf("looked at %v, expected 1m40s and 3m21s among them, and neither 50s nor 1m5s", slices.Sorted(maps.Keys(at)))
			}
			if took := w.now.Sub(began); took != 201*time.Second {
				t.Errorf("the rollout took %s, expected 3m21s", took)
			}
			if !slices.Contains(w.story, "deployment.healthy deployment_id=11") {
				t.Errorf("story %q", w.story)
			}
		})
	}
}

// R2-28: a failed Workflow fails its deployment with its message and that of the step, and the other one is stopped.
func TestAFailedWorkflow(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		for _, phase := range []string{"Failed", "Error"} {
			t.Run(name+" "+phase, func(t *testing.T) {
				t.Parallel()
				w := argoShop(t)
				w.argo.ends["api"], w.argo.takes["worker"] = phase, 300*time.Second
				failure := w.run(driver.Deploy, workflowInputs(edit))
				if !strings.Contains(failure, "migrate: Error (exit code 3)") {
					t.Errorf("failure %q, expected the message of the step", failure)
				}
				if !slices.ContainsFunc(w.submitted, func(s event.DeploymentSubmitted) bool {
					return s.DeploymentID == 11 && strings.HasPrefix(s.Status, phase+" from ") && strings.Contains(s.Status, "; migrate Failed from 10:00:00Z to ")
				}) {
					t.Errorf("found %+v, expected the course of the step that failed", w.submitted)
				}
				story := strings.Join(w.story, "\n")
				for _, want := range []string{
					"deployment.degraded deployment_id=11 reason=workflow deploy-api-d11: " + phase + ", child 'main' failed",
					"stop: deploy-worker-d12", "deployment.failed deployment_id=12", "rollout_environment.failed",
				} {
					if !strings.Contains(story, want) {
						t.Errorf("the story lacks %q:\n%s", want, story)
					}
				}
				if !strings.Contains(strings.Join(w.log, "\n"), "no such table") {
					t.Errorf("log %q, expected the end of the Workflow's", w.log)
				}
			})
		}
	}
}

// A submit without an answer may have created its Workflow: it is ended with the others.
func TestASubmitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := argoShop(t)
	w.argo.lost = map[string]bool{"deploy-worker-d12": true}
	failure := w.run(driver.Deploy, workflowInputs(nil))
	if !strings.Contains(failure, "failed to submit workflow: no answer") ||
		!slices.Contains(w.story, "stop: deploy-api-d11") || !slices.Contains(w.story, "stop: deploy-worker-d12") {
		t.Errorf("failure %q, story %q, expected that both are stopped", failure, w.story)
	}
}

// R2-27: a Workflow that never ends is stopped, and its deployment fails.
func TestAWorkflowThatNeverEnds(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			w.argo.takes["api"] = 0
			failure := w.run(driver.Deploy, workflowInputs(edit))
			if !strings.Contains(failure, "workflow timed out after 600 seconds") || !slices.Contains(w.story, "stop: deploy-api-d11") {
				t.Errorf("failure %q, story %q", failure, w.story)
			}
		})
	}
}

// R2-34: an abort stops the Workflows, or terminates them; a retry starts new ones.
func TestAnAbortStopsTheWorkflows(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		for _, how := range []string{"stop", "terminate"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				w := argoShop(t)
				w.argo.takes[""] = 120 * time.Second
				w.asks = map[string]map[string]time.Duration{
					"deployment.started deployment_id=12":                      {"com.gitlab.cd.rollout.abort_requested": 30 * time.Second},
					"rollout.aborted environment_id=3 reason=aborted: because": {"com.gitlab.cd.rollout.retry_requested": 60 * time.Second},
				}
				failure := w.run(driver.Deploy, workflowInputs(func(environment, config object) {
					if edit != nil {
						edit(environment, config)
					}
					config["abort_with"] = how
				}))
				if failure != "" {
					t.Fatal(failure)
				}
				expect(t, w,
					"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
					"deployment.started deployment_id=12", "workflow: deploy-api-d11", "deployment.committed deployment_id=11",
					"workflow: deploy-worker-d12", "deployment.committed deployment_id=12",
					how+": deploy-api-d11", how+": deploy-worker-d12", "rollout.aborted environment_id=3 reason=aborted: because",
					"workflow: deploy-api-d11-2", "deployment.committed deployment_id=11",
					"workflow: deploy-worker-d12-2", "deployment.committed deployment_id=12",
					"deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
					"rollout_environment.healthy environment_id=3", "rollout.healthy")
			})
		}
	}
}

// Every status of the Argo Server has its meaning (R2-22, R2-24, R2-31).
func TestStatusesOfTheArgoServer(t *testing.T) {
	t.Parallel()
	always := func(status int, message string) func() (int, object) {
		return func() (int, object) { return status, object{"message": message} }
	}
	for _, tc := range []struct {
		status         int
		answered, want string
	}{
		{400, "templates.main.steps[1].two template name 'nope' undefined", "refuses the Workflow: HTTP status 400: templates.main.steps[1].two"},
		{401, "token not valid", "does not accept the credential: HTTP status 401"},
		{403, "workflows.argoproj.io is forbidden", "lacks rights in the namespace: HTTP status 403"},
		{404, "namespace not found", "does not find it: HTTP status 404"},
		{413, "", "too large for the Argo Server: HTTP status 413"},
		{500, "boom", "the Argo Server answers: HTTP status 500: boom"},
	} {
		w := argoShop(t)
		w.argo.answers["POST"] = always(tc.status, tc.answered)
		failure := w.run(driver.Deploy, workflowInputs(atServer))
		if !strings.Contains(failure, "failed to submit workflow: ") || !strings.Contains(failure, tc.want) {
			t.Errorf("status %d: found %q, expected %q", tc.status, failure, tc.want)
		}
	}

	// The answer to the first POST is lost: the repeat finds what it has created.
	w := argoShop(t)
	w.argo.all["deploy-api-d11"] = &workflow{began: w.now, takes: time.Second, ends: "Succeeded", object: object{"metadata": object{
		"name": "deploy-api-d11", "labels": object{"lockstep.dev/operation": "rollout-7.deployment-11.1", "lockstep.dev/deployment": "11"},
	}}}
	if failure := w.run(driver.Deploy, workflowInputs(atServer)); failure != "" || w.argo.created != 1 {
		t.Errorf("a Workflow of the same operation: %q after %d were created, expected success after one", failure, w.argo.created)
	}
	// One of the same name that is another's is none of ours.
	w = argoShop(t)
	w.argo.all["deploy-api-d11"] = &workflow{began: w.now, takes: time.Second, ends: "Succeeded", object: object{"metadata": object{
		"name": "deploy-api-d11", "labels": object{"lockstep.dev/deployment": "11"},
	}}}
	failure := w.run(driver.Deploy, workflowInputs(atServer))
	if !strings.Contains(failure, "was not created for this deployment: HTTP status 409") {
		t.Errorf("a Workflow of another: %q, expected a conflict", failure)
	}
	// While it does not answer, the deployment waits (R2-26).
	w = argoShop(t)
	times := 0
	w.argo.answers["GET"] = func() (int, object) {
		times++
		if times < 5 {
			return []int{503, 500, 429, 502}[times-1], object{"message": "later"}
		}
		return 0, nil
	}
	if failure := w.run(driver.Deploy, workflowInputs(atServer)); failure != "" {
		t.Errorf("a server that is away for a while: %q", failure)
	}
	// What has been removed by others says nothing about how it ended.
	w = argoShop(t)
	w.argo.answers["GET"] = always(404, "not found")
	if failure := w.run(driver.Deploy, workflowInputs(atServer)); !strings.Contains(failure, "does not exist any more") {
		t.Errorf("a Workflow that was removed: %q", failure)
	}
}

// R2-08, R2-16, R2-17: a template that does not fit one deployment starts none.
func TestTemplatesThatFail(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"{[ .x":                          "api: parse template: ",
		`{[ fail "no" ]}`:                "api: execute template: ",
		"{[ .nothing ]}: [":              "read the Workflow that the template makes",
		"apiVersion: v1\nkind: Workflow": `apiVersion "v1", expected argoproj.io/v1alpha1`,
		"apiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow":                                          "makes a CronWorkflow, expected a Workflow",
		"apiVersion: argoproj.io/v1alpha1\nkind: Workflow":                                              "expected one of them",
		"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: x, namespace: kube-system}": "names the namespace kube-system",
		"just text": "makes a string, expected a Workflow",
		"{[ if eq .deployment.slug \"worker\" ]}{[ fail \"not this one\" ]}{[ end ]}apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: x}": "worker: execute template",
	} {
		w := argoShop(t)
		failure := w.run(driver.Deploy, workflowInputs(func(_, config object) { config["template"] = template }))
		if !strings.Contains(failure, want) || w.argo.created != 0 {
			t.Errorf("%s: found %q after %d Workflows, expected %q and none", template, failure, w.argo.created, want)
		}
	}
	w := argoShop(t)
	strict := func(_, config object) {
		config["template"], config["missing_keys"] = "{[ .variables.nothing ]}", "error"
	}
	if failure := w.run(driver.Deploy, workflowInputs(strict)); !strings.Contains(failure, `no entry for key "nothing"`) {
		t.Errorf("strict: %q (R2-15)", failure)
	}
}

// A preview whose Workflows the cluster could not say, or would not, shows what the template makes, and says so in its log.
func TestAPreviewWhoseClusterIsNotAsked(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		for _, code := range []string{"forbidden", "unreachable"} {
			t.Run(name+", "+code, func(t *testing.T) {
				t.Parallel()
				w := argoShop(t)
				in := workflowInputs(edit)
				w.fail = func(function string, _ object) *history.FunctionError {
					if function == "workflow.submit" || function == "http.request" {
						return &history.FunctionError{Code: code, Message: "not for you"}
					}
					return nil
				}
				previewed := object{"preview": object{"id": 5}, "rollout": in["rollout"], "version_set": in["version_set"]}
				if failure := w.run(driver.Preview, previewed); failure != "" {
					t.Fatal(failure)
				}
				if of := w.previews[0].Environments[0]; len(of.Changes) != 2 {
					t.Errorf("previewed %+v, expected both Workflows", of)
				}
				if log := strings.Join(w.log, "\n"); !strings.Contains(log, "worker is shown as the template makes it") || !strings.Contains(log, "not for you") {
					t.Errorf("log %q, expected that the cluster was not asked", log)
				}
			})
		}
	}
}

// R2-35, R2-40: setup and preview have the cluster validate the Workflow, and create nothing.
func TestWorkflowsAreTriedBeforeTheyRun(t *testing.T) {
	t.Parallel()
	for name, edit := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			in := workflowInputs(edit)
			environment := in["rollout"].(object)["environments"].([]any)[0].(object)
			previewed := object{"preview": object{"id": 5}, "rollout": in["rollout"], "version_set": in["version_set"]}
			if failure := w.run(driver.Preview, previewed); failure != "" {
				t.Fatal(failure)
			}
			changes := w.previews[0].Environments[0].Changes
			if len(changes) != 2 || changes[0].Path != "work/api.yaml" || !strings.Contains(changes[0].Diff, "+kind: Workflow") {
				t.Errorf("previewed %+v, expected both Workflows", changes)
			}
			of := environment["application_environment"].(object)
			of["services"] = []any{object{"id": 11, "name": "api"}}
			of["application"] = object{"id": 1, "name": "shop"}
			setup := object{"application_environment": of, "environment": environment}
			if failure := w.run(driver.Setup, setup); failure != "" {
				t.Fatal(failure)
			}
			of["config"].(object)["template"] = "{["
			if failure := w.run(driver.Setup, setup); !strings.Contains(failure, "api: parse template") {
				t.Errorf("setup with a text that is no template: %q", failure)
			}
			if failure := w.run(driver.Onboarding, object{"environment": environment}); failure != "" {
				t.Errorf("onboarding: %q", failure)
			}
			if w.argo.created != 0 {
				t.Errorf("%d Workflows were created, expected none", w.argo.created)
			}
			expect(t, w, "rollout.previewed", "application_environment.ready application_environment_id=5",
				"application_environment.not_ready application_environment_id=5 reason=api: parse template: template:1: unclosed action",
				"environment.ready environment_id=3")
		})
	}
}
