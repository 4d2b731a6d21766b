package domain

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// D48: the documented example of a check kind, a folder of three files by another author, is pushed as an OCI artifact, used by a pipeline,
// decides a passage, and is updated by a moved tag: rollouts under way keep the program that they began with, whatever becomes of the
// registry, and those that are created afterwards have the new one.
func TestAKindFromARegistryIsUsedAndUpdated(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	kind, err := driver.Files(os.DirFS(filepath.Join("..", "..", "docs", "examples", "check")))
	if err != nil {
		t.Fatal(err)
	}
	program := kind["v1/check.star"]
	s.push("ticket", kind)
	s.push("stable", letter(t, "one", "v1"))
	f := setupWith(t, clock.System(), Config{Drivers: DriversConfig{
		Artifacts: []string{s.reference("stable").String(), s.reference("ticket").String()},
	}})
	f.ok(f.drivers.Ask(t.Context(), s.reference("stable")))
	a := f.application("shop", "api")
	e, err := f.setup.CreateEnvironment(t.Context(), user(),
		setup.NewEnvironment{Name: "desk", Tier: core.TierStaging, DriverRef: "letter@1", DriverConfig: json.RawMessage(`{"drawer":3}`)})
	f.ok(err)
	f.report(event.EnvironmentReady{EnvironmentID: e.ID})
	author := func(with string) error {
		definition := strings.Replace(string(pipeline("desk")), `"environment":"desk"`,
			`"environment":"desk","checks":{"proposed":[{"key":"change","kind":"ticket","with":`+with+`}]}`, 1)
		_, err := f.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
			ApplicationID: a.ID, Definition: json.RawMessage(definition),
		})
		return err
	}
	if err := author(`{"url":"https://tickets.test"}`); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `found "ticket", which is not installed`) {
		t.Errorf("before it was pulled: %v", err)
	}
	f.ok(f.drivers.Ask(t.Context(), s.reference("ticket")))
	if err := author(`{"uri":"https://tickets.test"}`); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "/checks/proposed/0/with/ur") {
		t.Errorf("a configuration that does not fit: %v", err)
	}
	f.ok(author(`{"url":"https://tickets.test"}`))
	f.report(event.ApplicationEnvironmentReady{
		ApplicationEnvironmentID: 1, RolloutName: "api", RolloutNamespace: "shop", Discovered: json.RawMessage(`{}`),
	})
	f.publish(f.artifact("registry.test/shop/api", "1", 1, time.Unix(1, 0)))
	begun, err := f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: 1})
	f.ok(err)
	first := *begun.Rollout
	updated := map[string][]byte{}
	for name, text := range kind {
		updated[name] = text
	}
	updated["v1/check.star"] = append([]byte("# updated\n"), program...)
	s.push("ticket", updated)
	f.ok(f.drivers.Ask(t.Context(), s.reference("ticket")))
	s.away.Store(true)

	c := checked{winter{shop: &shop{fixture: f}}, nil}
	runs := func(run string, want []byte) {
		t.Helper()
		if got := c.programs()[run]; !bytes.Equal(got.Program.Source, want) || !strings.Contains(string(got.Inputs), "https://tickets.test") {
			t.Errorf("%s was started with %q and %s", run, got.Program.Source, got.Inputs)
		}
	}
	f.report(event.RolloutPassageRequested{RolloutID: first.ID, GateID: "desk"})
	runs(id.CheckRun(1), program)
	c.want(c.granted(), []string{})
	c.program(1, core.CheckSuccess, "CHG-7 is approved")
	c.want(c.granted(), []string{"desk"})
	_, err = f.rollouts.CancelRollout(t.Context(), user(), first.ID, "")
	f.ok(err)
	begun, err = f.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: 1})
	f.ok(err)
	second := *begun.Rollout
	f.report(event.RolloutPassageRequested{RolloutID: second.ID, GateID: "desk"})
	runs(id.CheckRun(2), updated["v1/check.star"])
	if found := len(c.waits(second, "check")); found != 1 {
		t.Errorf("found %d checks that it waits for; expected one", found)
	}
}
