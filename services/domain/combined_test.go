package domain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// mixed is an installation with paper and letter, which can be combined, with stone, which cannot be, and with brief, which can be but
// previews alone only.
func mixed(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	const preview = `,"preview":{"module":"fold.star","name":"examine"}`
	parts := `"parts":{"deploy":{"module":"fold.star","name":"part"}` + preview + `}, "modules"`
	for ref, parts := range map[string]string{
		"paper": parts, "letter": parts, "brief": strings.Replace(parts, preview, "", 1), "stone": `"modules"`,
	} {
		for name, text := range letter(t, "one", "v1") {
			if strings.HasSuffix(name, "manifest.json") {
				text = []byte(strings.Replace(strings.Replace(string(text), `"letter"`, `"`+ref+`"`, 1), `"modules"`, parts, 1))
			}
			path := filepath.Join(dir, ref, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return setupWith(t, clock.System(), Config{DriverDir: dir})
}

// bound makes a ready environment with a driver.
func (f *fixture) bound(name, driver string) core.Environment {
	f.t.Helper()
	e, err := f.setup.CreateEnvironment(f.t.Context(), user(), setup.NewEnvironment{
		Name: name, Tier: core.TierStaging, DriverRef: driver, DriverConfig: json.RawMessage(`{"drawer":3}`),
	})
	f.ok(err)
	f.report(event.EnvironmentReady{EnvironmentID: e.ID})
	return e
}

// D53, D25: a pipeline whose environments have different drivers is one run of one program that has the parts of both; each environment
// of its inputs names its own driver, and each of the record has its own pinned. A preview is asked of all of them together.
func TestAPipelineMayHaveSeveralDrivers(t *testing.T) {
	t.Parallel()
	f := mixed(t)
	a := f.application("shop", "api")
	f.bound("desk", "letter@1")
	f.bound("wall", "paper@1")
	_, err := f.setup.CreateFlowDefinition(
		t.Context(), user(), setup.NewFlowDefinition{ApplicationID: a.ID, Definition: pipeline("desk", "wall")},
	)
	f.ok(err)
	for id := int64(1); id <= 2; id++ {
		f.report(event.ApplicationEnvironmentReady{
			ApplicationEnvironmentID: id, RolloutName: "api", RolloutNamespace: "shop", Discovered: json.RawMessage(`{}`),
		})
	}
	f.publish(f.artifact("registry.test/shop/api", "1", 1, time.Unix(1, 0)))
	_, err = f.rollouts.PreviewRollout(t.Context(), user(), rollout.NewPreview{VersionSetID: 1})
	f.ok(err)
	made, err := f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: 1})
	f.ok(err)
	f.handOver()
	for _, w := range f.engine.started {
		if w.ID != "rollout-1" && w.ID != "preview-1" {
			continue
		}
		for _, module := range []string{"letter_1__fold.star", "paper_1__fold.star"} {
			if w.Program.Modules[module] == nil || !strings.Contains(string(w.Program.Source), module) {
				t.Errorf("%s runs without %s:\n%s", w.ID, module, w.Program.Source)
			}
		}
		var in struct {
			Rollout struct {
				Environments []struct{ Name, Driver string }
			}
		}
		f.ok(json.Unmarshal(w.Inputs, &in))
		if e := in.Rollout.Environments; len(e) != 2 || e[0].Driver != "letter@1" || e[1].Driver != "paper@1" {
			t.Errorf("%s is given %+v", w.ID, e)
		}
	}
	stops, err := f.view.RolloutEnvironmentsByRollout(t.Context(), org, []int64{made.Rollout.ID})
	f.ok(err)
	for i, ref := range []string{"letter@1", "paper@1"} {
		driver, err := f.drivers.Now().Lookup(ref)
		f.ok(err)
		if got := stops[made.Rollout.ID][i].DriverDigest; got != driver.Digest {
			t.Errorf("stop %d has pinned %s, expected %s", i+1, got, ref)
		}
	}
}

// D53: drivers that cannot be in one pipeline are refused where it is written, with the environments and the reason; the same drivers
// deploy alone. A rollout of a part with one driver is no combination, and can be previewed.
func TestDriversThatDeployAloneAreRefusedBesideOthers(t *testing.T) {
	t.Parallel()
	f := mixed(t)
	a := f.application("shop", "api")
	for name, driver := range map[string]string{"desk": "letter@1", "wall": "paper@1", "note": "brief@1", "cave": "stone@1"} {
		f.bound(name, driver)
	}
	save := func(environments ...string) error {
		_, err := f.setup.CreateFlowDefinition(
			t.Context(), user(), setup.NewFlowDefinition{ApplicationID: a.ID, Definition: pipeline(environments...)},
		)
		return err
	}
	for _, order := range [][]string{{"desk", "cave"}, {"cave", "desk"}, {"desk", "wall", "cave"}} {
		err := save(order...)
		fields := fault.FieldsOf(err)
		if !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != "/definition/steps" ||
			!strings.Contains(fields[0].Problem, `"cave" with driver stone@1 beside`) {
			t.Errorf("%v: %v, %v", order, err, fields)
		}
	}
	f.ok(save("cave"))
	f.ok(save("desk", "note"))
	f.publish(f.artifact("registry.test/shop/api", "1", 1, time.Unix(1, 0)))
	for id := int64(1); id <= 3; id++ {
		f.report(event.ApplicationEnvironmentReady{
			ApplicationEnvironmentID: id, RolloutName: "api", RolloutNamespace: "shop", Discovered: json.RawMessage(`{}`),
		})
	}
	if _, err := f.rollouts.PreviewRollout(t.Context(), user(), rollout.NewPreview{VersionSetID: 1}); !fault.Is(err, fault.Refused) ||
		!strings.Contains(err.Error(), "driver brief@1 cannot say beforehand what a rollout changes in a pipeline of several drivers") {
		t.Errorf("a preview with a driver that has no part for it: %v", err)
	}
	f.ok(save("note"))
	f.report(event.ApplicationEnvironmentReady{
		ApplicationEnvironmentID: 3, RolloutName: "api", RolloutNamespace: "shop", Discovered: json.RawMessage(`{}`),
	})
	_, err := f.rollouts.PreviewRollout(t.Context(), user(), rollout.NewPreview{VersionSetID: 1})
	f.ok(err)
}
