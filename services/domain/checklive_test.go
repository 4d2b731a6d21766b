package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// R3-28: the program of a proposed check receives what is live in the environment that would be entered, with what that was built from, so
// that nothing enters while it is a revert, and whether the rollout takes that back. Before anything is live it receives nothing of the
// kind, nor does an active check.
func TestAProposedCheckKnowsWhatIsLive(t *testing.T) {
	t.Parallel()
	c := promoter(t, "")
	prove, registry := c.proving()
	built := func(letter string) string {
		revision := strings.Repeat(letter, 40)
		registry.reports(provenance.Report{Sources: []provenance.Source{{Repository: "https://git.test/shop", Revision: revision}}}, false, nil)
		if c.lookUp(prove) == 0 {
			t.Fatal("looked up nothing")
		}
		return revision
	}
	gauge := func(target string) string {
		return `"` + target + `":[{"key":"` + target + `","kind":"gauge","with":{"most":5}}]`
	}
	_, err := c.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
		ApplicationID: c.application.ID, Definition: json.RawMessage(
			`{"steps":[{"type":"deploy","environment":"dev","checks":{` + gauge("proposed") + `,` + gauge("active") + `},"config":` + appEnvConfig("dev") +
				`},{"type":"deploy","environment":"prod","config":` + appEnvConfig("prod") + `}]}`),
	})
	c.ok(err)
	c.makeReady()
	isRollback := func(run string) bool { // whether the run knows that it is about a rollback
		t.Helper()
		var in struct {
			Subject struct{ Rollout struct{ Rollback bool } }
		}
		c.ok(json.Unmarshal(c.programs()[run].Inputs, &in))
		return in.Subject.Rollout.Rollback
	}
	type live struct {
		VersionSet struct {
			ID       int64
			Versions []struct{ Name string }
		} `json:"version_set"`
		Sources []struct{ Version, Repository, Revision string }
	}
	given := func(run string) *live {
		t.Helper()
		var in struct {
			Subject struct {
				VersionSet struct{ ID int64 } `json:"version_set"`
				Live       *live
			}
		}
		started, exists := c.programs()[run]
		if !exists {
			t.Fatalf("%s was not started", run)
		}
		c.ok(json.Unmarshal(started.Inputs, &in))
		return in.Subject.Live
	}

	older := built("a")
	first := c.rollout(c.set)
	c.enter(first, "dev")
	if found := given("check-1"); found != nil {
		t.Errorf("nothing is live, and found %+v", found)
	}
	c.program(1, "success", "")
	c.complete(first, "dev")
	c.enter(first, "prod")
	c.program(2, "success", "")
	c.complete(first, "prod")
	c.succeed(first)

	c.now.Advance(time.Hour)
	set := c.release(2)
	built("b")
	second := c.rollout(set)
	c.enter(second, "dev")
	found := given("check-3")
	if found == nil || found.VersionSet.ID != c.set.ID || len(found.VersionSet.Versions) == 0 ||
		len(found.Sources) != len(found.VersionSet.Versions) {
		t.Fatalf("found %+v; expected version set %d and its sources", found, c.set.ID)
	}
	for i, s := range found.Sources {
		c.want([]string{s.Version, s.Repository, s.Revision}, []string{found.VersionSet.Versions[i].Name, "https://git.test/shop", older})
	}
	c.program(3, "success", "")
	c.complete(second, "dev")
	c.enter(second, "prod")
	if found := given("check-4"); found != nil {
		t.Errorf("an active check, and found %+v", found)
	}

	c.want(isRollback("check-3"), false)
	back, err := c.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: second.ID, Reason: "down"})
	c.ok(err)
	c.enter(back, "dev")
	if found := given("check-5"); found == nil || found.VersionSet.ID != set.ID {
		t.Errorf("found %+v; expected version set %d", found, set.ID)
	}
	c.want(isRollback("check-5"), true)
}
