package drivertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// mixedShop is an application whose staging takes files in Git, by the driver of docs/examples, and whose production takes objects, by
// kubernetes@1 (D53).
func mixedShop(t *testing.T) (*world, object) {
	t.Helper()
	w, files := plainShop(t), example(t).bundle
	combined, err := driver.Combine(w.bundle, files)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := combined.Export()
	if err != nil {
		t.Fatal(err)
	}
	if w.bundle, err = driver.Import(archive); err != nil {
		t.Fatal(err)
	}
	in := exampleInputs()
	staging := in["rollout"].(object)["environments"].([]any)[0].(object)
	staging["driver"] = files.Ref()
	second := plainInputs(nil)["rollout"].(object)["environments"].([]any)[0].(object)
	second["id"], second["name"], second["tier"], second["position"], second["driver"] = 4, "production", "production", 2, "kubernetes@1"
	for i, d := range second["deployments"].([]any) {
		d.(object)["id"] = 21 + i
	}
	in["rollout"].(object)["environments"] = []any{staging, second}
	in["pipeline"] = object{"steps": []any{
		object{"type": "deploy", "environment": "staging"}, object{"type": "deploy", "environment": "production"},
	}}
	return w, in
}

// D53, D25, R4-23: one run goes through environments of different drivers, each by its own.
func TestOneRunGoesThroughEnvironmentsOfSeveralDrivers(t *testing.T) {
	t.Parallel()
	w, in := mixedShop(t)
	if failure := w.run(driver.Deploy, in); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w,
		"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
		"deployment.started deployment_id=12",
		"commit: Deploy shop-9 to staging (2 files) <nil>", "deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3",
		"rollout_environment.started environment_id=4", "deployment.started deployment_id=21", "deployment.started deployment_id=22",
		"apply: 3 objects, keeps 0, prune true", "deployment.committed deployment_id=21", "deployment.committed deployment_id=22",
		"deployment.healthy deployment_id=21", "deployment.healthy deployment_id=22",
		"rollout_environment.healthy environment_id=4", "rollout.healthy")
}

// D53, R4-23: a failure in the environment of one driver ends the rollout before that of another is touched.
func TestAFailureOfOneDriverStopsBeforeTheNext(t *testing.T) {
	t.Parallel()
	w, in := mixedShop(t)
	w.fail = func(name string, _ object) *history.FunctionError {
		if name == "git.commit" {
			return &history.FunctionError{Code: "unauthorized", Message: "the branch is protected"}
		}
		return nil
	}
	if failure := w.run(driver.Deploy, in); !strings.Contains(failure, "the branch is protected") {
		t.Errorf("found %q", failure)
	}
	if i := slices.IndexFunc(w.story, func(line string) bool {
		return strings.HasPrefix(line, "apply:") || strings.Contains(line, "environment_id=4")
	}); i >= 0 {
		t.Errorf("found %q after the failure", w.story[i])
	}
}
