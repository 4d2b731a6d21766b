package drivertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
)

// example is the driver of docs/examples, with the walk that it loads from the host (D34).
func example(t *testing.T) *world {
	t.Helper()
	top := filepath.Join("..", "..", "..", "..", "..")
	files, err := driver.Files(os.DirFS(filepath.Join(top, "docs", "examples", "driver")))
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := driver.FromFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.CheckNew(bundles); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.bundle = bundles[0]
	return w
}

// exampleInputs are those of a rollout with the example's configuration.
func exampleInputs() object {
	return inputs(2, func(_, environment object) {
		environment["config"] = object{"repository": "http://git/shop.git"}
		environment["application_environment"] = object{"id": 5, "discovered": object{}, "config": object{"folder": "staging"}}
	})
}

func TestTheExampleDeploys(t *testing.T) {
	t.Parallel()
	w := example(t)
	if failure := w.run(driver.Deploy, exampleInputs()); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w,
		"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
		"deployment.started deployment_id=12",
		"commit: Deploy shop-9 to staging (2 files) <nil>", "deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3", "rollout.healthy")
	if w.files["staging/api"] != "registry/shop/api:v\n" {
		t.Errorf("committed: %q", w.files)
	}
}

func TestTheExampleReportsWhetherItsRepositoryExists(t *testing.T) {
	t.Parallel()
	w := example(t)
	onboarding := object{"environment": object{
		"id": 3, "name": "staging", "tier": "staging",
		"config": object{"repository": "http://git/shop.git"},
	}}
	for _, content := range []string{"", "here"} {
		if content != "" {
			w.files["README"] = content
		}
		if failure := w.run(driver.Onboarding, onboarding); failure != "" {
			t.Fatal(failure)
		}
	}
	setup := object{
		"application_environment": object{"id": 5, "config": object{"folder": "staging"}},
		"environment":             onboarding["environment"],
	}
	if failure := w.run(driver.Setup, setup); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w, `environment.not_ready environment_id=3 reason=no file "README" at "main"`, "environment.ready environment_id=3",
		"application_environment.ready application_environment_id=5")
}
