package domain

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// R4-26: nothing is skipped if something is new that is no commit: another pipeline or configuration of a driver, or an environment that a
// rollout has touched which did not complete there.
func TestNothingIsSkippedIfMoreThanCommitsIsNew(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	w.withManifests()
	w.changing(901, 0, "feat: all")
	define := func(seconds int) {
		t.Helper()
		_, err := w.setup.CreateFlowDefinition(t.Context(), user(), setup.NewFlowDefinition{
			ApplicationID: w.application.ID, Definition: json.RawMessage(fmt.Sprintf(`{"steps":[
				{"type":"deploy","environment":"staging","config":%s},
				{"type":"pause","name":"soak","duration":%d,"skip_on":{"paths":["docs/**"]}},
				{"type":"deploy","environment":"production","config":%s}]}`, appEnvConfig("staging"), seconds, appEnvConfig("production"))),
		})
		w.ok(err)
		w.makeReady()
	}
	define(60)
	commit := 901
	skips := func(want int) core.Rollout {
		t.Helper()
		commit++
		w.changing(commit, commit-1, "docs: words", "docs/a.md")
		made, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: w.sets()[0].ID, Again: true})
		w.ok(err)
		rows, _ := w.skipped(*made.Rollout)
		w.want(len(rows), want)
		return *made.Rollout
	}
	w.succeed(skips(0)) // nothing is live
	w.succeed(skips(1))
	define(61)
	w.succeed(skips(0))
	w.succeed(skips(1))
	w.ok(w.rebound(w.staging, `{"drawer":4}`))
	w.makeReady()
	w.succeed(skips(0))
	failed := skips(1)
	stop := w.stops(failed)[0]
	w.report(
		event.RolloutStarted{RolloutID: failed.ID}, event.RolloutEnvironmentStarted{RolloutID: failed.ID, EnvironmentID: stop.EnvironmentID},
		event.DeploymentStarted{DeploymentID: w.deployments(stop)[0].ID}, event.RolloutFailed{RolloutID: failed.ID, Reason: "no"},
	)
	skips(0)
}
