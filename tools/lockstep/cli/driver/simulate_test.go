package driver

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	engine "github.com/lockstep-cd/lockstep/services/workflow"
)

func simulate(t *testing.T, kind, input string) (engine.TestSimulation, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "input.yaml")
	if err := os.WriteFile(file, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	bundle, err := kindOf(kind)
	if err != nil {
		return engine.TestSimulation{}, err
	}
	one, err := simulation(bundle, file)
	if err != nil {
		return engine.TestSimulation{}, err
	}
	return engine.Simulate(one)
}

const approval = `
config:
  http_request: {url_template: "https://api.example.com/{[ .Branch ]}"}
  mode: {type: polling}
  success:
    when: {variables: {expression: "{\"good\": Response.StatusCode == 200}"}, expression: "Variables.good && Response.Body.approved == true"}
  description_template: "{[ .Branch ]} is {[ .Phase ]}"
functions:
  http.request:
  - result: {ok: true, status: 200, headers: {}, sha256: "", size: 18, json: {approved: true}, body: '{"approved": true}'}
`

// R3-47, D48: a simulation runs a check kind without a service, and prints what each of its expressions and templates comes to.
func TestASimulationShowsEachExpression(t *testing.T) {
	t.Parallel()
	done, err := simulate(t, "web-request", approval)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	simulationTable(&out, done)
	for _, want := range []string{
		"http_request.url_template", `"https://api.example.com/production"`, "success.when.variables.expression", `{"good":true}`,
		"success.when.expression", "Variables.good && Response.Body.approved == true", "description_template", `"production is success"`,
		"reported", "success", "production is success",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("found\n%s\nwant %s in it", out.String(), want)
		}
	}
	if done.State != "completed" || len(done.Reports) != 1 {
		t.Errorf("found %s with %v; want it completed with one report", done.State, done.Reports)
	}
	wrong, err := simulate(t, "web-request@1", strings.Replace(approval, "Response.Body.approved", "Response.Body.absent", 1))
	if err != nil {
		t.Fatal(err)
	}
	failed := wrong.Expressions[len(wrong.Expressions)-1]
	if !strings.Contains(failed.Error, "absent") || wrong.State != "cancelled" || wrong.Reports[0].Phase != "failure" {
		t.Errorf("found %+v in %+v; want the error of the expression, and the failure reported", failed, wrong)
	}
}

// Bad input is refused with what was found and where.
func TestWhatCannotBeSimulatedIsRefused(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ kind, input, want string }{
		{"web-requests", approval, `kind: found "web-requests", expected a built-in check kind`},
		{"web-request", strings.Replace(approval, "polling", "both", 1), "/mode/type"},
		{"web-request", strings.Replace(approval, "Variables.good &&", "Variables.good &", 1), "/success/when/expression: line 1, column"},
		{"web-request", approval + "function: {}\n", "function"},
		{"web-request", "[", "input: "},
		{"web-request", approval + "target: past\n", `target: found "past", expected`},
		{"web-request", approval + "steps: [{advance: x}]\n", "steps"},
	} {
		if _, err := simulate(t, one.kind, one.input); err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: found %v; want %q", one.input, err, one.want)
		}
	}
}
