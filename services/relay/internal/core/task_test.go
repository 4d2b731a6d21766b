package core

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// tasks are limits that allow Workflows and Jobs in one namespace.
func tasks() Limits {
	return Limits{WorkflowNamespaces: []string{"work"}, JobNamespaces: []string{"work"}}
}

const (
	migration = `{"agent_id":42,"namespace":"work","operation":"deployment 11","workflow":{"apiVersion":"argoproj.io/v1alpha1","kind":"Workflow",
		"metadata":{"generateName":"migrate-","labels":{"team":"shop"}},"spec":{"entrypoint":"main","parallelism":2}}}`
	jobArgs = `{"agent_id":42,"namespace":"work","deadline":600,"job":{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"migrate"},"spec":{}}}`
)

func (s *shelf) one(t *testing.T) Object {
	t.Helper()
	if len(s.objects) != 1 {
		t.Fatalf("found %d objects, expected one", len(s.objects))
	}
	for _, o := range s.objects {
		return o
	}
	return nil
}

// R2-18, R2-19, R2-31, R2-38: a name that is the same each time, labels that say whose it is beside the author's, and a limit to how
// long it is kept.
func TestASubmitIsRepeatable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{objects: map[string]Object{}}
		first := s.run(t, tasks(), FunctionSubmitWorkflow, migration)
		if first.Err != nil {
			t.Fatal(first.Err)
		}
		o := s.one(t)
		name := o.text("metadata", "name")
		if !strings.HasPrefix(name, "migrate-") || len(name) != len("migrate-")+10 {
			t.Errorf("name %q, expected migrate- and ten characters", name)
		}
		labels := o.object("metadata", "labels")
		if labels["team"] != "shop" || labels[labelManagedBy] != "lockstep" || labels[labelOrganization] != "7" {
			t.Errorf("labels %v", labels)
		}
		if n, _ := o.number("spec", "ttlStrategy", "secondsAfterCompletion"); n != 24*3600 {
			t.Errorf("spec %v, expected that it is kept for a day", o["spec"])
		}
		o["status"] = map[string]any{"phase": "Running", "message": "1/2"}
		again := s.run(t, tasks(), FunctionSubmitWorkflow, migration)
		want := map[string]any{"name": name, "namespace": "work", "uid": "", "phase": "Running", "message": "1/2", "ended": false}
		if diff := cmp.Diff(want, again.Value); diff != "" || s.writes != 1 {
			t.Errorf("the same call again: %v, %d writes (-want +got):\n%s", again.Err, s.writes, diff)
		}
		other := s.run(t, tasks(), FunctionSubmitWorkflow, strings.Replace(migration, "deployment 11", "deployment 12", 1))
		if other.Err != nil || other.Value["name"] == name || s.writes != 2 {
			t.Errorf("another operation: %+v after %d writes, expected a Workflow of its own", other, s.writes)
		}
	})
}

// R2-31: an object of the same name that another call has created is no success of this one.
func TestATaskOfAnotherIsAConflict(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]any{
		"a person's":             {},
		"another organization's": {labelManagedBy: managedBy, labelOrganization: "8", labelOperation: digestOf("8", callID)},
		"another operation's":    {labelManagedBy: managedBy, labelOrganization: "7", labelOperation: digestOf("7", "x")},
	} {
		s := &shelf{objects: map[string]Object{"Job work/migrate": {"metadata": map[string]any{"name": "migrate", "namespace": "work", "labels": labels}}}}
		answer := s.run(t, tasks(), FunctionRunJob, jobArgs)
		if answer.Err == nil || answer.Err.Code != CodeConflict || answer.Err.Retryable || s.writes != 0 {
			t.Errorf("%s: %+v after %d writes, expected a conflict that is final", name, answer, s.writes)
		}
		if name == "another operation's" {
			continue // it is the organization's own to stop
		}
		for _, function := range []string{FunctionStopJob, FunctionJobLogs} {
			answer := s.run(t, tasks(), function, `{"agent_id":42,"namespace":"work","name":"migrate"}`)
			if answer.Err == nil || answer.Err.Code != CodeForbidden || s.writes != 0 {
				t.Errorf("%s: %s: %+v, expected a refusal", name, function, answer)
			}
		}
	}
}

// R2-16, R2-17: what is not a Workflow is refused by what was found.
func TestWhatIsNotATaskIsRefused(t *testing.T) {
	t.Parallel()
	object := func(edit string) string {
		return `{"agent_id":42,"namespace":"work","workflow":{` + edit + `}}`
	}
	const fits = `"apiVersion":"argoproj.io/v1alpha1","kind":"Workflow"`
	for args, want := range map[string]string{
		object(`"apiVersion":"v1","kind":"Workflow","metadata":{"name":"x"}`):                       `workflow.apiVersion: found "v1", expected argoproj.io/v1alpha1`,
		object(`"apiVersion":"argoproj.io/v1alpha1","kind":"CronWorkflow","metadata":{"name":"x"}`): `workflow.kind: found "CronWorkflow", expected Workflow`,
		object(fits + `,"metadata":{"name":"x","namespace":"kube-system"}`):                         "workflow.metadata.namespace",
		object(fits): "workflow.metadata.name: found none",
		object(fits + `,"metadata":{"name":"` + strings.Repeat("x", 64) + `"}`):                             "at most 63 characters",
		object(fits + `,"metadata":{"name":"x","labels":{"a":1}}`):                                          "workflow.metadata.labels.a: found 1",
		object(fits + `,"metadata":{"name":"x","labels":{"lockstep.dev/owner":"o7.e3.a5"}}`):                `metadata.labels: found "lockstep.dev/owner"`,
		object(fits + `,"metadata":{"name":"x","annotations":{"lockstep.dev/authorized":"7"}}`):             `annotations: found "lockstep.dev/authorized"`,
		object(fits + `,"metadata":{"name":"x","annotations":{"lockstep.dev/stopped":"true"}}`):             `annotations: found "lockstep.dev/stopped"`,
		`{"agent_id":42,"namespace":"work"}`:                                                                "workflow: missing",
		`{"agent_id":42,"namespace":"work","workflow":{` + fits + `,"metadata":{"name":"x"}},"deadline":0}`: "deadline: found 0",
	} {
		s := &shelf{objects: map[string]Object{}}
		answer := s.run(t, tasks(), FunctionSubmitWorkflow, args)
		if answer.Err == nil || answer.Err.Code != CodeInvalid || !strings.Contains(answer.Err.Message, want) || s.writes != 0 {
			t.Errorf("%s: %+v, expected %q", args, answer, want)
		}
	}
	s := &shelf{objects: map[string]Object{}}
	long := object(fits + `,"metadata":{"generateName":"` + strings.Repeat("x", 80) + `"}`)
	if answer := s.run(t, tasks(), FunctionSubmitWorkflow, long); answer.Err != nil || len(s.one(t).text("metadata", "name")) != maxTaskName {
		t.Errorf("a long beginning of a name: %+v, expected it shortened to %d", answer, maxTaskName) // R2-19
	}
	suspended := strings.Replace(jobArgs, `"spec":{}`, `"spec":{"suspend":true}`, 1)
	if answer := s.run(t, tasks(), FunctionRunJob, suspended); answer.Err == nil || !strings.Contains(answer.Err.Message, "spec.suspend") {
		t.Errorf("a suspended Job: %+v, expected a refusal: it would never end", answer)
	}
}

// An author's shorter deadline counts; a longer one does not.
func TestADeadlineIsTheClusterToo(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]int64{`{}`: 600, `{"activeDeadlineSeconds":60}`: 60, `{"activeDeadlineSeconds":6000}`: 600} {
		s := &shelf{objects: map[string]Object{}}
		if answer := s.run(t, tasks(), FunctionRunJob, strings.Replace(jobArgs, `"spec":{}`, `"spec":`+spec, 1)); answer.Err != nil {
			t.Fatal(answer.Err)
		}
		if got, _ := s.one(t).number("spec", "activeDeadlineSeconds"); got != want {
			t.Errorf("%s: deadline %d, expected %d", spec, got, want)
		}
	}
}

// The object is the only memory of its call, so an author cannot have it removed before the last repeat of the call.
func TestATaskOutlivesItsCall(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]int64{
		`{}`: keptAfterEnd, `{"ttlSecondsAfterFinished":0}`: leastKept, `{"ttlSecondsAfterFinished":601}`: 601,
	} {
		s := &shelf{objects: map[string]Object{}}
		if answer := s.run(t, tasks(), FunctionRunJob, strings.Replace(jobArgs, `"spec":{}`, `"spec":`+spec, 1)); answer.Err != nil {
			t.Fatal(answer.Err)
		}
		if got, _ := s.one(t).number("spec", "ttlSecondsAfterFinished"); got != want {
			t.Errorf("%s: a Job is kept for %d, expected %d", spec, got, want)
		}
	}
	s := &shelf{objects: map[string]Object{}}
	strategy := `"ttlStrategy":{"secondsAfterCompletion":5,"secondsAfterSuccess":0,"secondsAfterFailure":7200},"parallelism":2`
	if answer := s.run(t, tasks(), FunctionSubmitWorkflow, strings.Replace(migration, `"parallelism":2`, strategy, 1)); answer.Err != nil {
		t.Fatal(answer.Err)
	}
	for name, want := range map[string]int64{"secondsAfterCompletion": leastKept, "secondsAfterSuccess": leastKept, "secondsAfterFailure": 7200} {
		if got, _ := s.one(t).number("spec", "ttlStrategy", name); got != want {
			t.Errorf("%s of a Workflow: %d, expected %d", name, got, want)
		}
	}
}

// R2-35: a dry run changes nothing.
func TestADryRunCreatesNothing(t *testing.T) {
	t.Parallel()
	s := &shelf{objects: map[string]Object{}}
	answer := s.run(t, tasks(), FunctionSubmitWorkflow, strings.Replace(migration, `"agent_id":42`, `"agent_id":42,"dry_run":true`, 1))
	if answer.Err != nil || s.writes != 0 || len(s.objects) != 0 {
		t.Errorf("%+v after %d writes, expected the Workflow and no write", answer, s.writes)
	}
	if o, isObject := answer.Value["workflow"].(map[string]any); !isObject || Object(o).text("spec", "entrypoint") != "main" {
		t.Errorf("found %v, expected the Workflow", answer.Value)
	}
}

// What is not found by a create is the namespace, by a dry run as well.
func TestADryRunWithoutANamespace(t *testing.T) {
	t.Parallel()
	s := &shelf{objects: map[string]Object{}, dry: fault.New(fault.NotFound, "not found")}
	answer := s.run(t, tasks(), FunctionSubmitWorkflow, strings.Replace(migration, `"agent_id":42`, `"agent_id":42,"dry_run":true`, 1))
	if answer.Err == nil || answer.Err.Code != CodeNotFound || !strings.Contains(answer.Err.Message, "namespace work does not exist") {
		t.Errorf("%+v, expected that the namespace does not exist", answer)
	}
}

// R2-28, and what Kubernetes says of a Job.
func TestPhases(t *testing.T) {
	t.Parallel()
	condition := func(kind, status string) string {
		return `{"status":{"active":1,"conditions":[{"type":"` + kind + `","status":"` + status + `","reason":"BackoffLimitExceeded","message":"why"}]}}`
	}
	for _, tc := range []struct {
		kind           taskKind
		object         string
		phase, message string
		ended          bool
	}{
		{workflowTask(), `{}`, "Pending", "", false},
		{workflowTask(), `{"status":{"phase":"Running"}}`, "Running", "", false},
		{workflowTask(), `{"status":{"phase":"Succeeded"}}`, "Succeeded", "", true},
		{workflowTask(), `{"status":{"phase":"Failed","message":"Stopped with strategy 'Stop'"}}`, "Failed", "Stopped with strategy 'Stop'", true},
		{workflowTask(), `{"status":{"phase":"Error","message":"x"}}`, "Error", "x", true},
		{jobTask(), `{}`, "Pending", "", false},
		{jobTask(), `{"status":{"active":1}}`, "Running", "", false},
		{jobTask(), condition("FailureTarget", "True"), "Running", "", false},
		{jobTask(), condition("Failed", "False"), "Running", "", false},
		{jobTask(), condition("Failed", "True"), "Failed", "BackoffLimitExceeded: why", true},
		{jobTask(), condition("Complete", "True"), "Succeeded", "why", true},
		{
			jobTask(),
			`{"metadata":{"annotations":{"lockstep.dev/stopped":"true"}},"status":{"conditions":[{"type":"Failed","status":"True","reason":"DeadlineExceeded"}]}}`,
			"Failed", "stopped", true,
		},
	} {
		var o Object
		if err := json.Unmarshal([]byte(tc.object), &o); err != nil {
			t.Fatal(err)
		}
		phase, message := tc.kind.state(o)
		if phase != tc.phase || message != tc.message || hasEnded(phase) != tc.ended {
			t.Errorf("%s: found %s, %q, ended %t; expected %s, %q, %t", tc.object, phase, message, hasEnded(phase), tc.phase, tc.message, tc.ended)
		}
	}
}

// R2-34: stop lets exit handlers run, terminate does not; the one never takes back the other, and what has ended stays as it is.
func TestTasksAreStopped(t *testing.T) {
	t.Parallel()
	task := func(edit func(Object)) Object {
		o := Object{
			"metadata": map[string]any{"name": "x", "namespace": "work", "resourceVersion": "5", "labels": map[string]any{
				labelManagedBy: managedBy, labelOrganization: "7",
			}},
			"spec": map[string]any{}, "status": map[string]any{"phase": "Running", "active": int64(1)},
		}
		edit(o)
		return o
	}
	shutdown := func(how string) func(Object) {
		return func(o Object) { o["spec"] = map[string]any{"shutdown": how} }
	}
	as := func(Object) {}
	for _, tc := range []struct {
		name string
		kind taskKind
		how  string
		o    Object
		want Object // the patch; nil for none
	}{
		{"stop", workflowTask(), stopGently, task(as), Object{"spec": map[string]any{"shutdown": "Stop"}}},
		{"terminate", workflowTask(), terminated, task(as), Object{"spec": map[string]any{"shutdown": "Terminate"}}},
		{"stopped already", workflowTask(), stopGently, task(shutdown("Stop")), nil},
		{"terminate what is stopped", workflowTask(), terminated, task(shutdown("Stop")), Object{"spec": map[string]any{"shutdown": "Terminate"}}},
		{"stop what is terminated", workflowTask(), stopGently, task(shutdown("Terminate")), nil},
		{"ended", workflowTask(), terminated, task(func(o Object) { o["status"] = map[string]any{"phase": "Succeeded"} }), nil},
		{"a Job", jobTask(), terminated, task(as), Object{"spec": map[string]any{"activeDeadlineSeconds": int64(1)}}},
		{"a Job that was stopped", jobTask(), terminated, task(func(o Object) {
			o.object("metadata")["annotations"] = map[string]any{annotationStopped: "true"}
		}), nil},
		{"none", jobTask(), terminated, nil, nil},
	} {
		d, err := tc.kind.nextEnd(tc.how, Ref{Kind: tc.kind.kind, Namespace: "work", Name: "x"}, tc.o, "7")
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if tc.want == nil {
			if d.Action != Done {
				t.Errorf("%s: %+v, expected nothing to do", tc.name, d)
			}
			continue
		}
		if d.Action != Patch || d.Body.text("metadata", "resourceVersion") != "5" {
			t.Errorf("%s: %+v, expected a patch of what was seen", tc.name, d)
		}
		if diff := cmp.Diff(tc.want["spec"], d.Body["spec"]); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", tc.name, diff)
		}
	}
}

// A relay whose configuration names no namespaces runs no tasks, whatever else it allows.
func TestNoTasksByDefault(t *testing.T) {
	t.Parallel()
	for function, args := range map[string]string{FunctionSubmitWorkflow: migration, FunctionRunJob: jobArgs} {
		s := &shelf{objects: map[string]Object{}}
		answer := s.run(t, Limits{}, function, args)
		if answer.Err == nil || answer.Err.Code != CodeForbidden || s.writes != 0 ||
			!strings.Contains(answer.Err.Message, "names the namespaces") {
			t.Errorf("%s: %+v, expected a refusal that names the setting", function, answer)
		}
	}
}

// R2-44: what looks like a secret does not become part of a history.
func TestLogsAreRedacted(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"migrating 12 tables":                              "migrating 12 tables",
		"password=hunter2 user=x":                          "password=[redacted] user=x",
		`{"api_key": "abc", "n": 1}`:                       `{"api_key": "[redacted]", "n": 1}`,
		"Authorization: Bearer abc.def":                    "Authorization: Bearer [redacted]",
		"postgres://shop:hunter2@db/shop":                  "postgres://[redacted]@db/shop",
		"key AKIAABCDEFGHIJKLMNOP used":                    "key [redacted] used",
		"got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc now": "got [redacted] now",
		"AWS_SECRET_ACCESS_KEY=wJalr/b+c done":             "AWS_SECRET_ACCESS_KEY=[redacted] done",
		"SECRET_KEY_BASE: 0123abc":                         "SECRET_KEY_BASE: [redacted]",
		"PRIVATE_KEY=abc":                                  "PRIVATE_KEY=[redacted]",
		`password="correct horse battery" x`:               `password="[redacted]" x`,
		`DB_PASSWORD='correct horse' x`:                    `DB_PASSWORD='[redacted]' x`,
		"password=a,b;c x":                                 "password=[redacted] x",
		"token=abc&user=x":                                 "token=[redacted]&user=x",
		"MIIEabc\n-----END RSA PRIVATE KEY-----\nready":    "[redacted]\nready",
		"a\x00b\xffc":                                      "ab\uFFFDc",
	} {
		if got := withoutSecrets(given); got != want {
			t.Errorf("%q: found %q, expected %q", given, got, want)
		}
	}
}

// A pod that has gone, or whose container has not started, has no log; what was created by another is not read at all.
func TestLogsOfAContainer(t *testing.T) {
	t.Parallel()
	pod := Object{
		"metadata": map[string]any{"name": "p"},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "wait"}, map[string]any{"name": "main"}}},
	}
	if got := workflowTask().containerOf(pod, ""); got != "main" {
		t.Errorf("container of a Workflow's pod: %q, expected main", got)
	}
	if got := jobTask().containerOf(pod, ""); got != "wait" {
		t.Errorf("container of a Job's pod: %q, expected its first", got)
	}
	if got := jobTask().containerOf(pod, "main"); got != "main" {
		t.Errorf("container that was asked for: %q", got)
	}
	s := &shelf{objects: map[string]Object{}}
	answer := s.run(t, tasks(), FunctionWorkflowLogs, `{"agent_id":42,"namespace":"work","name":"x"}`)
	if answer.Err == nil || answer.Err.Code != CodeNotFound {
		t.Errorf("%+v, expected %s", answer, fault.NotFound)
	}
}

// The logs of a task are read like those of a pod: the end of each, all within one bound, without secrets; a cut is reported (D54, R2-37).
func TestLogsOfATask(t *testing.T) {
	t.Parallel()
	read := func(log, more string) Answer {
		c := newCupboard()
		c.log = log
		c.put("batch/v1", "Job", "work", "migrate", "", "")
		c.objects["Job work/migrate"].object("metadata")["labels"] = map[string]any{labelManagedBy: managedBy, labelOrganization: "7"}
		for _, pod := range []string{"a", "b"} {
			c.put("v1", "Pod", "work", pod, "", "")
			c.objects["Pod work/"+pod].object("metadata")["labels"] = map[string]any{jobTask().podLabel: "migrate"}
		}
		return c.run(t, tasks(), FunctionJobLogs, `{"agent_id":42,"namespace":"work","name":"migrate"`+more+`}`)
	}
	answer := read("password=hunter2\nready\n", "")
	want := []any{
		map[string]any{"pod": "a", "container": "", "text": "password=[redacted]\nready\n"},
		map[string]any{"pod": "b", "container": "", "text": "password=[redacted]\nready\n"},
	}
	if diff := cmp.Diff(want, answer.Value["logs"]); diff != "" || answer.Value["truncated"] != false {
		t.Errorf("%+v %v (-want +got):\n%s", answer, answer.Err, diff)
	}
	answer = read(strings.Repeat("0123456789\n", mostTaskLog/11), "") // within the bound once, not twice
	all, _ := answer.Value["logs"].([]any)
	if len(all) != 2 || answer.Value["truncated"] != true {
		t.Errorf("found %d logs, truncated %v %v; expected two, cut", len(all), answer.Value["truncated"], answer.Err)
	}
	if answer = read("", `,"lines":1001`); answer.Err == nil || answer.Err.Code != CodeInvalid {
		t.Errorf("1001 lines: %+v, expected %s", answer, CodeInvalid)
	}
}

// A run whose rollout has ended may stop only what it has started itself: the relay compares the operation (D54).
func TestAStopIsAboutAnOperation(t *testing.T) {
	t.Parallel()
	labels := map[string]any{labelManagedBy: managedBy, labelOrganization: "7", labelOperation: digestOf("7", "rollout-7.migrate")}
	for operation, want := range map[string]string{"rollout-7.migrate": "", "rollout-8.migrate": CodeConflict} {
		s := &shelf{objects: map[string]Object{"Job work/migrate": {
			"metadata": map[string]any{"name": "migrate", "namespace": "work", "labels": labels}, "status": map[string]any{"active": int64(1)},
		}}}
		answer := s.run(t, tasks(), FunctionStopJob, `{"agent_id":42,"namespace":"work","name":"migrate","operation":"`+operation+`"}`)
		switch {
		case want == "" && (answer.Err != nil || s.writes != 1):
			t.Errorf("%s: %+v after %d writes, expected one", operation, answer, s.writes)
		case want != "" && (answer.Err == nil || answer.Err.Code != want || s.writes != 0):
			t.Errorf("%s: %+v after %d writes, expected %s", operation, answer, s.writes, want)
		}
	}
}
