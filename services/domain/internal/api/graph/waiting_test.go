package graph_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// TestARolloutListsEverythingItWaitsFor looks at one as it progresses, as people do who ask why nothing moves (R4-03).
func TestARolloutListsEverythingItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	qa := f.environment(ours, "qa", core.TierQA)
	shop := f.application(ours, "shop", "api")
	f.pipeline(ours, shop, qa)
	r := f.rollout(ours, shop)
	waits := func(step, want string) {
		t.Helper()
		var data struct {
			Rollout struct {
				WaitingOn []struct{ Kind, Detail, Resolver string }
			}
		}
		f.ask(ours, `{ rollout(id: "rollout_1") { waitingOn { kind detail resolver } } }`, nil).into(t, &data)
		var got []string
		for _, w := range data.Rollout.WaitingOn {
			if w.Detail == "" || w.Resolver == "" {
				t.Errorf("%s: %+v says neither what is missing nor who can help", step, w)
			}
			got = append(got, w.Kind)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: waits for %q, want %q", step, got, want)
		}
	}
	waits("made", "HAND_OVER")
	f.apply(ours, rollout.DeploymentMoved{DeploymentID: 1, Verb: core.VerbStart})
	waits("on its way", "HEALTH")
	now := time.Now()
	f.apply(ours, rollout.ContactSeen{Contact: core.Contact{
		EnvironmentID: qa.ID, Reason: "no heartbeat for 90 s",
		Since: now, ObservedAt: now,
	}})
	waits("with nobody there", "AGENT HEALTH")
	f.apply(ours, rollout.ContactSeen{Contact: core.Contact{
		EnvironmentID: qa.ID, Reachable: true, Since: now,
		ObservedAt: now.Add(time.Second),
	}})
	f.apply(ours, rollout.GatePassage{DeploymentID: 1, Verb: core.VerbReachGate, Weight: 25})
	f.apply(ours, rollout.GateReached{RolloutID: r.ID, EnvironmentID: qa.ID, Weight: 25})
	waits("at a gate without a soak", "")
	f.apply(ours, rollout.ApprovalRequested{RolloutID: r.ID, GateID: "qa"})
	must(f.rollouts.PauseRollout(t.Context(), actor(ours), r.ID, "incident"))(t)
	waits("requested and held", "APPROVAL PAUSE")
	f.apply(ours, rollout.EnvironmentReadiness{EnvironmentID: qa.ID, Reason: "the controller is gone"})
	waits("in an environment that is lost", "APPROVAL ENVIRONMENT PAUSE")
	must(f.rollouts.CancelRollout(t.Context(), actor(ours), r.ID, "enough"))(t)
	waits("over", "")
}
