package drivertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// runbook is a world with a runbook: jobs in staging and production, which deploy nothing.
func runbook(t *testing.T) (*world, *cluster, object) {
	t.Helper()
	w := shop(t)
	c := &cluster{all: map[string]*workflow{}, takes: map[string]time.Duration{}, fails: map[string]int{}}
	w.tasks = c
	in := inputs(2, nil)
	rollout := in["rollout"].(object)
	rollout["inputs"] = object{"region": "eu", "count": 3}
	staging := rollout["environments"].([]any)[0].(object)
	staging["runs_jobs"], staging["gates"] = true, []any{}
	staging["services"], staging["deployments"] = staging["deployments"], []any{}
	production := object{}
	for k, v := range staging {
		production[k] = v
	}
	production["id"], production["name"], production["position"] = 4, "production", 2
	rollout["environments"] = []any{staging, production}
	template := "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n" +
		"      - {name: main, image: {[ .versions.api.reference | toJson ]}, args: [{[ .inputs.region | toJson ]}, \"{[ .inputs.count ]}\"]}\n"
	step := func(environment, name string) object {
		return object{"type": "job", "environment": environment, "job": object{"name": name, "namespace": "tools", "template": template}}
	}
	in["pipeline"].(object)["steps"] = []any{
		step("staging", "drain"), step("staging", "restart"), object{"type": "approval", "name": "sure", "reason": "look"}, step("production", "restart"),
	}
	return w, c, in
}

// R4-09: the first job in an environment enters it, the last one completes it, and templates have the inputs and the versions.
func TestARunbook(t *testing.T) {
	t.Parallel()
	w, c, in := runbook(t)
	w.answers = map[string]string{"staging": "approved", "sure": "approved", "production": "approved"}
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	sequence(t, w, []string{
		"rollout.started", "rollout_environment.started environment_id=3", "job.run: drain-r7-e3-1 in tools", "job.run: restart-r7-e3-1 in tools",
		"rollout_environment.healthy environment_id=3", "rollout_environment.started environment_id=4", "job.run: restart-r7-e4-1 in tools",
		"rollout_environment.healthy environment_id=4", "rollout.healthy",
	}, opening, "deployment.started")
	if text := fmt.Sprint(c.all["drain-r7-e3-1"].object["spec"]); !strings.Contains(text, image("api", 2)) || !strings.Contains(text, "[eu 3]") {
		t.Errorf("spec %s, expected the version and the inputs", text)
	}
}

// A job that fails ends the runbook: no later one runs, and no later environment is entered.
func TestARunbookThatFails(t *testing.T) {
	t.Parallel()
	w, c, in := runbook(t)
	c.fails["drain"] = 1
	if failure := w.run(driver.Deploy, in); !strings.Contains(failure, "job drain failed") {
		t.Errorf("failure %q", failure)
	}
	sequence(t, w, []string{
		"rollout_environment.started environment_id=3", "job.run: drain-r7-e3-1 in tools", "rollout_environment.failed environment_id=3", "rollout.failed",
	}, "job.run: restart-r7-e3-1", "rollout_environment.started environment_id=4")
}
