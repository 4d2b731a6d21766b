package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// handed are the strategy of a rollout and the weights in each of its environments, as its program was given them.
func (s *shop) handed(r core.Rollout) (string, []int) {
	s.t.Helper()
	var in struct {
		Rollout struct {
			Strategy     string
			Environments []struct{ Gates []core.FlowGate }
		}
	}
	s.ok(json.Unmarshal(s.inputsOfRun(r), &in))
	weights := []int{}
	for _, e := range in.Rollout.Environments {
		for _, g := range e.Gates {
			weights = append(weights, g.Weight)
		}
	}
	return in.Rollout.Strategy, weights
}

// R4-21: the program of a pipeline sync has its weights to stop at and that of a quick sync has none, and whichever of them fails, the
// rollback is a rollout of its own, which is planned as any other: it stops at the weights of what it changes.
func TestAQuickSyncAPipelineAndTheirRollbacks(t *testing.T) {
	t.Parallel()
	for choice, want := range map[planner.Choice]struct {
		strategy string
		weights  []int
	}{
		planner.ChooseQuick:    {"quick", []int{}},
		planner.ChoosePipeline: {"pipeline", []int{20, 50}},
	} {
		t.Run(string(choice), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.weighted("")
			s.succeed(s.rollout(s.set))
			made, err := s.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{VersionSetID: s.release(2).ID, Strategy: choice})
			s.ok(err)
			r := *made.Rollout
			strategy, weights := s.handed(r)
			s.want(strategy, want.strategy)
			s.want(weights, want.weights)
			s.begin(r, 0)
			s.report(event.RolloutFailed{RolloutID: r.ID, Reason: "sync failed"})
			s.close()
			done, worked := s.due()
			s.want(worked && done.MadeRolloutID != r.ID, true)
			back := s.reload(core.Rollout{ID: done.MadeRolloutID})
			s.want([]int64{back.RollbackOf, back.VersionSetID}, []int64{r.ID, s.set.ID})
			s.plans(back, planner.Pipeline, "the application is deployed already, and nothing says that its weights may be skipped")
			strategy, weights = s.handed(back)
			s.want(strategy, "pipeline")
			s.want(weights, []int{20})
			s.succeed(back)
			s.want([]core.RolloutState{s.reload(r).State, s.reload(back).State}, []core.RolloutState{core.RolloutFailed, core.RolloutCompleted})
			s.verifyJournal(r)
			s.verifyJournal(back)
		})
	}
}

// R2-23: what cancels the request that asked for a rollout, once it was answered, ends nothing: the rollout is handed to the engine,
// runs and completes.
func TestACancelledRequestLeavesItsRolloutAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.handOver() // what the set-up has begun
	ctx, cancel := context.WithCancel(t.Context())
	made, err := s.rollouts.CreateRollout(ctx, user(), rollout.NewRollout{VersionSetID: s.set.ID})
	cancel()
	s.ok(err)
	before := len(s.engine.started)
	s.handOver()
	s.want(len(s.engine.started), before+1)
	s.want(s.reload(*made.Rollout).State, core.RolloutPending)
	s.succeed(*made.Rollout)
	s.want(s.reload(*made.Rollout).State, core.RolloutCompleted)
	s.verifyJournal(*made.Rollout)
}

// written is the journal of a rollout from its start, each row with its states and reason.
func (s *shop) written(r core.Rollout) []string {
	s.t.Helper()
	j, err := s.view.Journal(s.t.Context(), org, r.ID, core.Page{First: 500})
	s.ok(err)
	lines := []string{}
	for _, row := range j.Nodes {
		if row.Verb != core.VerbPlan && row.Verb != core.VerbCreate {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s→%s %s", row.Subject.Kind, row.Verb, row.From, row.To, row.Reason)))
		}
	}
	return lines
}

// R4-23: the steps of a rollout are in its journal in their order, each with its states, why it has ended so, and the end of its log. A
// failure ends the rollout, nothing after it is entered, and what the policy says about failures is done.
func TestEachStepHasItsStateReasonAndLog(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.succeed(s.rollout(s.set))
	r := s.rollout(s.release(2))
	at := func(data ...event.Data) {
		for _, d := range data {
			s.report(d)
		}
	}
	at(event.RolloutStarted{RolloutID: r.ID}, event.RolloutPassageRequested{RolloutID: r.ID, GateID: "staging", EnvironmentID: s.staging.ID},
		event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: s.staging.ID})
	started, ended := s.jobEvents(r, 1, "succeeded")
	at(started, ended)
	one := s.deployments(s.stops(r)[0])
	for _, d := range one {
		at(event.DeploymentStarted{DeploymentID: d.ID})
	}
	at(event.DeploymentHealthy{DeploymentID: one[0].ID}, event.DeploymentFailed{DeploymentID: one[1].ID, Reason: "crash loop"},
		event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: s.staging.ID, Reason: "web: crash loop"},
		event.RolloutFailed{RolloutID: r.ID, Reason: "staging: web: crash loop"})
	s.want(s.written(r), []string{
		"rollout start pending→in_progress",
		"rollout pass_gate in_progress→in_progress no approval required",
		"rolloutenvironment start pending→in_progress",
		"rollout start_job in_progress→in_progress",
		"rollout end_job in_progress→in_progress succeeded: exit code 3\nno such table",
		"deployment start pending→deploying",
		"deployment start pending→deploying",
		"deployment complete deploying→healthy",
		"deployment fail deploying→failed crash loop",
		"rolloutenvironment fail in_progress→failed web: crash loop",
		"rollout fail in_progress→failed staging: web: crash loop",
		"rolloutenvironment cancel pending→cancelled the rollout failed: staging: web: crash loop",
		"deployment cancel pending→cancelled the rollout failed: staging: web: crash loop",
		"deployment cancel pending→cancelled the rollout failed: staging: web: crash loop",
	})
	s.close()
	done, worked := s.due()
	s.want(worked && done.MadeRolloutID > 0, true)
	s.verifyJournal(r)
}
