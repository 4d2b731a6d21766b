package drivertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// R2-10: what the expressions of a template refer to.
func TestWhatATemplateRefersTo(t *testing.T) {
	t.Parallel()
	digest := strings.SplitN(image("api", 2), "@", 2)[1]
	want := map[string]string{
		".deployment": `{"id":11,"name":"api","slug":"api"}`, ".job": `{"id":11}`, ".service": `{"id":11,"name":"api"}`,
		".environment": `{"id":3,"name":"staging","tier":"staging"}`,
		".resource":    `{"config":{"namespace":"work"},"metadata":{},"name":"staging"}`,
		".application": `{"id":1,"name":"shop"}`, ".rollout": `{"id":7}`, ".version_set": `{"id":9,"name":"shop-9"}`,
		".version":             fmt.Sprintf(`{"digest":%q,"image":"registry/shop/api","label":"2","name":"2","reference":%q,"tag":"2"}`, digest, image("api", 2)),
		".release.version.tag": `"2"`, "(index .versions 0).name": `"2"`,
		".variables": `{"colour":"red"}`, ".inputs": `{"region":"eu"}`,
	}
	w := argoShop(t)
	in := workflowInputs(func(_, config object) {
		text := "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: deploy-{[ .deployment.slug ]}}\nspec:\n  arguments:\n    parameters:\n"
		for expression := range want {
			text += fmt.Sprintf("      - {name: %q, value: {[ %s | toJson | quote ]}}\n", expression, expression)
		}
		config["template"] = text
	})
	in["rollout"].(object)["inputs"] = object{"region": "eu"}
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	found := map[string]string{}
	for _, p := range w.argo.all["deploy-api-d11"].object["spec"].(object)["arguments"].(object)["parameters"].([]any) {
		var value any
		if err := json.Unmarshal([]byte(p.(object)["value"].(string)), &value); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		found[p.(object)["name"].(string)] = string(text)
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// R2-19: the name of a version as the value of a label has at most 63 characters, of those that a label may have, and ends as one may.
func TestALongVersionAsALabel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		strings.Repeat("x", 70):               strings.Repeat("x", 63),
		strings.Repeat("x", 62) + "-rc.1":     strings.Repeat("x", 62),
		"feature/login+2026 (grün)":           "feature-login-2026--grn",
		"-v1.2_3.":                            "v1.2_3",
		strings.Repeat("-", 10) + "1.0":       "1.0",
		"1.0+" + strings.Repeat("build.", 20): ("1.0-" + strings.Repeat("build.", 20))[:63],
	} {
		w := argoShop(t)
		in := workflowInputs(nil)
		deployments := in["rollout"].(object)["environments"].([]any)[0].(object)["deployments"].([]any)
		deployments[0].(object)["versions"].([]any)[0].(object)["name"] = name
		if failure := w.run(driver.Deploy, in); failure != "" {
			t.Fatalf("%s: %s", name, failure)
		}
		if got := w.argo.all["deploy-api-d11"].object["metadata"].(object)["labels"].(object)["version"]; got != want {
			t.Errorf("%s: found %q, expected %q", name, got, want)
		}
	}
}

// R2-08: a configuration that lacks something, or has it of another type, fails the deployment at once with what is wrong, and starts
// nothing. Its schema refuses it when it is saved; one that is stored may be of another release.
func TestAMalformedConfigurationAtDispatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(environment, config object)
		want string
	}{
		"no template":          {func(_, config object) { delete(config, "template") }, "found nothing for template, expected a text"},
		"a template of a list": {func(_, config object) { config["template"] = []any{"x"} }, "template"},
		"a deadline in words":  {func(_, config object) { config["deadline"] = "soon" }, "deadline"},
		"variables in a list":  {func(_, config object) { config["variables"] = []any{"x"} }, "variables"},
		"no server":            {func(environment, _ object) { environment["config"] = object{"access": "server", "credential": "argo"} }, "server_url"},
		"no agent":             {func(environment, _ object) { environment["config"] = object{} }, "cluster_agent_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := argoShop(t)
			failure := w.run(driver.Deploy, workflowInputs(tc.edit))
			if !strings.Contains(failure, "configuration") || !strings.Contains(failure, tc.want) || w.argo.created != 0 {
				t.Errorf("found %q after %d Workflows, expected what is wrong with %s, and none", failure, w.argo.created, tc.want)
			}
		})
	}
}

// R2-28: however many steps a Workflow has, what is shown of them has room in the event; the others are counted.
func TestTheStepsOfALargeWorkflow(t *testing.T) {
	t.Parallel()
	w := argoShop(t)
	w.argo.steps = 200
	if failure := w.run(driver.Deploy, workflowInputs(nil)); failure != "" {
		t.Fatal(failure)
	}
	status := w.submitted[2].Status
	shown := strings.Count(status, " Succeeded from ") + strings.Count(status, " Omitted from ")
	if len(status) > 500 || shown < 5 || !strings.HasSuffix(status, fmt.Sprintf("; %d more steps", 203-shown)) {
		t.Errorf("found %d bytes with %d steps: %s", len(status), shown, status)
	}
}
