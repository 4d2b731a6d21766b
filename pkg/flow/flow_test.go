package flow_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/flow"
)

const whole = `{"steps": [
  {"type": "deploy", "environment": "staging", "gates": [{"weight": 25, "soak_duration": 5}, {"weight": 100}], "config": {"application": "shop-staging"}},
  {"type": "pause", "name": "breathe", "duration": 60},
  {"type": "approval", "name": "release", "reason": "the release manager agrees"},
  {"type": "deploy", "environment": "production", "approval": {"reason": "it is production"}, "gates": [{"weight": 50, "approval": {}}], "config": {}}
]}`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := flow.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := flow.Definition{Steps: []flow.Step{
		{
			Type: flow.Deploy, Environment: "staging", Gates: []flow.Gate{{Weight: 25, SoakDuration: 5}, {Weight: 100}},
			Config: json.RawMessage(`{"application": "shop-staging"}`),
		},
		{Type: flow.Pause, Name: "breathe", Duration: 60},
		{Type: flow.Approve, Name: "release", Reason: "the release manager agrees"},
		{
			Type: flow.Deploy, Environment: "production", Approval: &flow.Approval{Reason: "it is production"},
			Gates: []flow.Gate{{Weight: 50, Approval: &flow.Approval{}}}, Config: json.RawMessage(`{}`),
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
}

func TestBadDefinitionsAreRefused(t *testing.T) {
	t.Parallel()
	steps := func(s string) string { return `{"steps":[` + s + `]}` }
	staging := `{"type":"deploy","environment":"staging","config":{}}`
	tests := []struct{ name, text, want string }{
		{"not JSON", `{"steps":`, `line 1, column 9: found text that is not JSON (unexpected EOF); expected one JSON value`},
		{"no steps", `{}`, `/steps: found nothing; expected a value`},
		{"empty", `{"steps":[]}`, `/steps: found 0 items; expected at least 1`},
		{
			"a status without a key", `{"checks":{"active":[{"kind":"status"}]},"steps":[{"type":"deploy","environment":"staging","config":{}}]}`,
			`/checks/active/0/key: found nothing; expected a value`,
		},
		{
			"health for a time", `{"checks":{"active":[{"kind":"health","duration":60}]},"steps":[{"type":"deploy","environment":"staging","config":{}}]}`,
			`/checks/active/0/duration: found 60; expected nothing: not allowed here`,
		},
		{
			"a timer in sync", `{"checks":{"active":[{"kind":"timer","duration":60,"in_sync":true}]},"steps":[{"type":"deploy","environment":"staging","config":{}}]}`,
			`/checks/active/0/in_sync: found true; expected nothing: not allowed here`,
		},
		{
			"a default key with two kinds", `{"checks":{"active":[{"kind":"health"},{"key":"argocd-health"}]},"steps":[{"type":"deploy","environment":"staging","config":{}}]}`,
			`/checks/active/0/key: found "argocd-health", which another check has with a different kind; expected one kind for each key; ` +
				`/checks/active/1/key: found "argocd-health", which another check has with a different kind; expected one kind for each key`,
		},
		{
			"a key with two kinds", `{"checks":{"active":[{"key":"soak","kind":"timer","duration":60}]},"steps":[{"type":"deploy","environment":"staging","config":{},"checks":{"active":[{"key":"soak"}]}}]}`,
			`/steps/0/checks/active/0/key: found "soak", which another check has with a different kind; expected one kind for each key`,
		},
		{"unknown field", `{"steps":[` + staging + `],"stages":[]}`, `/stages: found a field that does not exist; expected one of steps, checks, inputs, deadline, commitMatcher, work_deadline, compareManifests, alwaysUsePipeline and 1 more`},
		{
			"unknown type", steps(`{"type":"teleport","to":"mars"}`),
			`/steps/0/type: found "teleport"; expected one of "deploy", "pause", "approval", "analysis", "job"`,
		},
		{"no type", steps(`{"environment":"staging"}`), `/steps/0/type: found nothing; expected a value`},
		{"no environment", steps(`{"type":"deploy","config":{}}`), `/steps/0/environment: found nothing; expected a value`},
		{"no config", steps(`{"type":"deploy","environment":"x"}`), `/steps/0/config: found nothing; expected a value`},
		{
			"field of another type", steps(staging + `,{"type":"pause","duration":1,"gates":[]}`),
			`/steps/1/gates: found a field that does not exist; expected one of name, type, duration, skip_on`,
		},
		{
			"weight above all", steps(`{"type":"deploy","environment":"x","config":{},"gates":[{"weight":101}]}`),
			`/steps/0/gates/0/weight: found 101; expected at most 100`,
		},
		{
			"weight zero", steps(`{"type":"deploy","environment":"x","config":{},"gates":[{"weight":0}]}`),
			`/steps/0/gates/0/weight: found 0; expected at least 1`,
		},
		{
			"weights fall", steps(`{"type":"deploy","environment":"x","config":{},"gates":[{"weight":50},{"weight":50},{"weight":25}]}`),
			`/steps/0/gates/1/weight: found 50 after 50; expected weights that rise from gate to gate; /steps/0/gates/2/weight: found 25 after 50; expected weights that rise from gate to gate`,
		},
		{
			"environment twice", steps(staging + "," + staging),
			`/steps/1/environment: found "staging", which /steps/0 deploys to already; expected each environment once`,
		},
		{"nothing deployed", steps(`{"type":"pause","duration":1}`), `/steps: found no deploy step; expected at least one, or a job: a pipeline of jobs is a runbook`},
		{"negative pause", steps(staging + `,{"type":"pause","duration":-1}`), `/steps/1/duration: found -1; expected at least 0`},
		{
			"control characters in a name", steps(`{"type":"approval","name":"a\u0000b"}`),
			`/steps/0/name: found "a\u0000b"; expected text that matches ^[^\p{C}\p{Z}/]+( [^\p{C}\p{Z}/]+)*$`,
		},
		{
			"text that turns round in a name", steps(`{"type":"approval","name":"\u202eabc"}`),
			"/steps/0/name: found \"\u202eabc\"; expected text that matches ^[^\\p{C}\\p{Z}/]+( [^\\p{C}\\p{Z}/]+)*$",
		},
		{
			"the gate of an environment as a name", steps(`{"type":"approval","name":"staging/25"}`),
			`/steps/0/name: found "staging/25"; expected text that matches ^[^\p{C}\p{Z}/]+( [^\p{C}\p{Z}/]+)*$`,
		},
		{
			"gate id twice", steps(`{"type":"approval","name":"staging"},{"type":"deploy","environment":"staging","config":{},"approval":{}}`),
			`/steps/1/approval: found gate id "staging", which /steps/0/name has already; expected one of its own`,
		},
		{"too large", strings.Repeat(" ", flow.MaxBytes+1), `: found 1048577 bytes; expected at most 1048576`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := flow.Parse([]byte(tt.text))
			if !fault.Is(err, fault.Invalid) || len(fault.FieldsOf(err)) == 0 {
				t.Fatalf("error %v is not of class invalid with fields", err)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	all := []string{"deploy", "pause", "approval"}
	both := []string{"staging", "production"}
	tests := []struct {
		name  string
		known flow.Known
		want  string
	}{
		{"everything is known", flow.Known{Steps: all, Environments: both}, ""},
		{
			"unsupported step",
			flow.Known{Steps: []string{"deploy", "pause"}, Environments: both},
			`/steps/2/type: found "approval", which the driver does not support; expected one of deploy, pause`,
		},
		{
			"unknown environment",
			flow.Known{Steps: all, Environments: both[:1]},
			`/steps/3/environment: found "production"; expected an environment that exists: staging`,
		},
		{
			"no environment yet",
			flow.Known{Steps: all},
			`/steps/0/environment: found "staging"; expected an environment that exists: there is none yet; /steps/3/environment: found "production"; expected an environment that exists: there is none yet`,
		},
		{"config does not fit", flow.Known{Steps: all, Environments: both, ValidateConfig: func(environment string, _ json.RawMessage) error {
			if environment == "production" {
				return fault.InvalidFields(fault.Field{Name: "/application", Problem: "found nothing; expected a value"})
			}
			return nil
		}}, `/steps/3/config/application: found nothing; expected a value`},
		{"config is refused as a whole", flow.Known{Steps: all, Environments: both, ValidateConfig: func(string, json.RawMessage) error {
			return fault.New(fault.Invalid, "odd")
		}}, `/steps/0/config: odd; /steps/3/config: odd`},
		{"nobody can answer", flow.Known{Steps: all, Environments: both, CheckRules: func(flow.Rules) []fault.Field {
			return []fault.Field{{Name: "/group", Problem: "odd"}}
		}}, `/steps/0/group: odd; /steps/1/group: odd; /steps/2/group: odd; /steps/3/group: odd; /steps/3/approval/group: odd; /steps/3/gates/0/approval/group: odd`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			def, err := flow.Parse([]byte(whole))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := flow.Check(def, tt.known); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// D46: the ids of environments and weights are reserved, whether or not the pipeline puts an approval there.
func TestAnApprovalStepCannotHaveTheNameOfAnEnvironment(t *testing.T) {
	t.Parallel()
	steps := func(s string) string { return `{"steps":[` + s + `]}` }
	known := flow.Known{Steps: []string{"deploy", "approval"}, Environments: []string{"production", "step-0"}}
	tests := []struct{ name, steps, want string }{
		{
			"before it", steps(`{"type":"approval","name":"production"},{"type":"deploy","environment":"production","config":{}}`),
			`/steps/0/name: found gate id "production", which is reserved for the environment of /steps/1; expected another name`,
		},
		{
			"behind it", steps(`{"type":"deploy","environment":"production","config":{}},{"type":"approval","name":"production"}`),
			`/steps/1/name: found gate id "production", which is reserved for the environment of /steps/0; expected another name`,
		},
		{
			"without a name of its own", steps(`{"type":"approval"},{"type":"deploy","environment":"step-0","config":{}}`),
			`/steps/0/name: found gate id "step-0", which is reserved for the environment of /steps/1; expected another name`,
		},
		{"another name", steps(`{"type":"approval","name":"release"},{"type":"deploy","environment":"production","config":{}}`), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			def, err := flow.Parse([]byte(tt.steps))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := flow.Check(def, known); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			stored := known
			stored.Stored = true
			if err := flow.Check(def, stored); err != nil {
				t.Errorf("a pipeline that was accepted earlier: %v", err)
			}
		})
	}
}

func TestCheckReturnsTheErrorsOfItsCallbacks(t *testing.T) {
	t.Parallel()
	def, err := flow.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("bundle is gone")
	err = flow.Check(def, flow.Known{
		Steps: []string{"deploy", "pause", "approval"}, Environments: []string{"staging", "production"},
		ValidateConfig: func(string, json.RawMessage) error { return lost },
	})
	if !errors.Is(err, lost) || fault.Is(err, fault.Invalid) {
		t.Errorf("error = %v, want the lost bundle, not a fault of the definition", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"steps":[{"type":"deploy","environment":"a","config":{},"gates":[{"weight":1e2}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		def, err := flow.Parse(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("error %v is not of class invalid", err)
			}
			return
		}
		again, err := json.Marshal(def)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := flow.Parse(again); err != nil {
			t.Errorf("what was parsed does not parse again: %v\n%s", err, again)
		}
	})
}

// D54: jobs are named once in an environment, run where something was deployed before, and only if the driver runs them.
func TestJobs(t *testing.T) {
	t.Parallel()
	job := func(name string) string { return `{"name": "` + name + `", "template": "x"}` }
	deploy := func(more string) string {
		return `{"type": "deploy", "environment": "staging", "config": {}` + more + `}`
	}
	for _, tc := range []struct {
		name, steps string
		supported   []string
		want        string
	}{
		{"before, after and on failure", deploy(`, "before": [` + job("a") + `], "after": [` + job("b") + `], "on_failure": [` + job("c") + `]`), nil, ""},
		{"a step", deploy("") + `, {"type": "job", "environment": "staging", "job": ` + job("a") + `}`, nil, ""},
		{
			"the same name twice", deploy(`, "before": [` + job("a") + `], "after": [` + job("a") + `]`), nil,
			`/steps/0/after/0/name: found "a", which /steps/0/before/0/name has already`,
		},
		{
			"the same name in a step", deploy(`, "before": [`+job("a")+`]`) + `, {"type": "job", "environment": "staging", "job": ` + job("a") + `}`, nil,
			`/steps/1/job/name: found "a"`,
		},
		{
			"before anything is deployed", `{"type": "job", "environment": "staging", "job": ` + job("a") + `}, ` + deploy(""), nil,
			`/steps/0/environment: found "staging"; expected an environment that an earlier step deploys to`,
		},
		{"another driver", deploy(`, "before": [` + job("a") + `]`), []string{"deploy"}, "/steps/0/before: found jobs, which the driver does not run"},
		{"no template", deploy(`, "before": [{"name": "a"}]`), nil, "/steps/0/before/0/template"},
		{"a name that Kubernetes does not have", deploy(`, "before": [` + job("A b") + `]`), nil, "/steps/0/before/0/name"},
		{"a field that does not exist", deploy(`, "before": [{"name": "a", "template": "x", "image": "y"}]`), nil, "/steps/0/before/0/image"},
		{"too many retries", deploy(`, "before": [{"name": "a", "template": "x", "retries": 11}]`), nil, "/steps/0/before/0/retries"},
	} {
		supported := tc.supported
		if supported == nil {
			supported = []string{"deploy", "job"}
		}
		def, err := flow.Parse([]byte(`{"steps": [` + tc.steps + `]}`))
		if err == nil {
			err = flow.Check(def, flow.Known{Steps: supported, Environments: []string{"staging"}})
		}
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: found %v, expected %q", tc.name, err, tc.want)
		}
	}
}
