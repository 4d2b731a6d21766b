package driver_test

import (
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// hosted are the texts of a driver whose deploy program loads the walk from the host (D34).
func hosted(load string) map[string][]byte {
	return map[string][]byte{
		"manifest.json": []byte(`{"ref":"x","supported_pipeline_steps":["deploy"],"environment_schema":"v1/e.json",
			"application_environment_schema":"v1/a.json","workflows":{"onboarding":"v1/o.star","application_environment_setup":"v1/o.star",
			"deploy":"v1/d.star"}}`),
		"v1/e.json": []byte(`{"type":"object"}`), "v1/a.json": []byte(`{"type":"object"}`), "v1/o.star": []byte("pass\n"),
		"v1/d.star": []byte(load + "\n"),
	}
}

func TestADriverLoadsTheWalkFromTheHost(t *testing.T) {
	t.Parallel()
	bundles, err := driver.FromFiles(hosted("load(\"lockstep:walk@1\", \"walk\")\nload(\"lockstep:check@1\", \"report\")\n" +
		"load(\"lockstep:git_repository@1\", \"repository\")\nload(\"lockstep:git_compare@1\", \"compare\")\nload(\"lockstep:git_examine@1\", \"examine\")"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := bundles[0].Program(driver.Deploy)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range driver.HostModules() {
		if len(p.Modules[name]) == 0 {
			t.Errorf("the program has no module %s", name)
		}
		if strings.Contains(strings.ReplaceAll(string(p.Modules[name]), `"main.star"`, ""), `.star"`) {
			t.Errorf("%s loads a module of the driver", name)
		}
	}
	archive, err := bundles[0].Export()
	if err != nil {
		t.Fatal(err)
	}
	// A bundle that was stored keeps the text that it was built with.
	kept, err := driver.Import([]byte(strings.Replace(string(archive), "Carries the rollout", "Carried the rollout", 1)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := kept.Program(driver.Deploy)
	if err != nil || !strings.Contains(string(again.Modules["lockstep:walk@1"]), "Carried the rollout") || kept.Digest() == bundles[0].Digest() {
		t.Errorf("the stored bundle has another text: %v", err)
	}
	without, err := driver.FromFiles(hosted("pass"))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := without[0].Program(driver.Deploy); err != nil || len(p.Modules) != 0 {
		t.Errorf("a driver that loads none has %d modules, %v", len(p.Modules), err)
	}
	_, err = driver.FromFiles(hosted(`load("lockstep:walk@2", "walk")`))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `v1/d.star: found load of "lockstep:walk@2"`) {
		t.Errorf("a host module that does not exist: %v", err)
	}
}
