package domain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// comparing is a shop that is deployed, and whose drivers compare the manifests.
func comparing(t *testing.T) winter {
	t.Helper()
	w := clocked(t)
	w.people(5)
	w.weighted(`"compareManifests":true,`)
	first := w.rollout(w.set)
	w.plans(first, planner.Quick, "nothing of the application has been deployed successfully yet")
	w.succeed(first)
	return w
}

// asks asks for a rollout, which has to wait for the drivers, and returns the number of the comparison.
func (w winter) asks(n rollout.NewRollout) int64 {
	w.t.Helper()
	n.Again = true
	made, err := w.rollouts.CreateRollout(w.t.Context(), person(5), n)
	w.ok(err)
	if made.Rollout != nil || made.Queued == nil || made.Queued.ComparisonID == 0 {
		w.t.Fatalf("found %+v; want one that waits for a comparison", made)
	}
	return made.Queued.ComparisonID
}

// lists reports what the drivers list, the same for both environments.
func (w winter) lists(comparison int64, c event.Comparison) {
	w.t.Helper()
	if c.Things == nil {
		c.Things = []event.ChangedThing{}
	}
	w.report(event.RolloutPreviewed{PreviewID: comparison, Environments: []event.PreviewedEnvironment{
		{EnvironmentID: w.staging.ID, Changes: []event.FileChange{}, Compared: &c},
		{EnvironmentID: w.production.ID, Changes: []event.FileChange{}, Compared: &c},
	}})
}

// beginsQueued begins what waits in the queue, if it may, and reports whether something was done.
func (w winter) beginsQueued() bool {
	w.t.Helper()
	q, worked, err := w.rollouts.BeginQueued(w.t.Context())
	w.ok(err)
	w.want(q.Outcome, "")
	return worked
}

// nothing lists no change.
func nothing() event.Comparison { return event.Comparison{Workloads: 1} }

// R4-15 [E], R4-19: what the drivers list decides about a rollout about which nothing else does. It waits for them, and each of what they
// report counts once, in any order.
func TestTheDriversCompareTheManifests(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	scaled := event.Comparison{Workloads: 1, Things: []event.ChangedThing{
		{Kind: "replicas", Action: "changed", Object: "Deployment/api", Detail: "2 → 4"},
	}}
	id := w.asks(rollout.NewRollout{VersionSetID: w.set.ID, Reason: "more of them"})
	w.want(w.beginsQueued(), false)
	w.handOver()
	last := w.engine.started[len(w.engine.started)-1]
	w.want(last.ID, "preview-"+itoa(id))
	w.want(strings.Contains(string(last.Program.Source), "nothing to compare"), true)
	w.report(event.WorkflowCompleted{WorkflowID: last.ID}) // the end of the run may arrive before its result
	w.lists(id, scaled)
	w.lists(id, nothing()) // the same run reports twice
	w.want(w.beginsQueued(), true)
	w.want(w.beginsQueued(), false)
	r := w.active()
	w.plans(r, planner.Quick, "to scale: only replicas change (replicas of Deployment/api: 2 → 4)")
	_, why := w.created(r)
	w.want(strings.Contains(why, "queue: asked for at"), true)
	w.succeed(r)

	images := event.Comparison{Workloads: 1, Things: []event.ChangedThing{
		{Kind: "image", Action: "changed", Object: "Deployment/api", Detail: "api:1 → api:2"},
	}}
	id = w.asks(rollout.NewRollout{VersionSetID: w.release(2).ID})
	w.lists(id, images)
	w.want(w.beginsQueued(), true)
	w.plans(w.active(), planner.Pipeline, "image of Deployment/api: api:1 → api:2")
	w.verifyJournal(w.active())
}

// What is chosen, forbidden or decided before does not wait for the drivers; neither does what takes something back or repeats it.
func TestWhatDoesNotWaitForAComparison(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	made, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: w.release(2).ID, Strategy: planner.ChooseQuick,
	})
	w.ok(err)
	w.begin(*made.Rollout, 0)
	back, err := w.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: made.Rollout.ID})
	w.ok(err)
	w.plans(back, planner.Pipeline, "the application is deployed already, and nothing says that its weights may be skipped")
	w.report(event.RolloutFailed{RolloutID: back.ID, Reason: "x"})
	again, err := w.rollouts.RetryRollout(t.Context(), user(), back.ID, "mended")
	w.ok(err)
	w.want(again.Plan.Strategy, planner.Pipeline)
	w.want(w.countOf(`SELECT count(*) FROM cd_rollout_previews`), 0)
}

// A program that fails, lies, leaves an environment out or does not answer leaves the pipeline in force, and the rollout says why. A lie
// that fits everything that is known makes a quick sync, which keeps every condition.
func TestADriverThatDoesNotCooperate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		report func(w winter, id int64)
		why    string
	}{
		"it fails": {func(w winter, id int64) {
			w.report(event.WorkflowFailed{WorkflowID: "preview-" + itoa(id), Error: "boom"})
		}, "the manifests of staging could not be compared: boom"},
		"it ends without a report": {func(w winter, id int64) {
			w.report(event.WorkflowCompleted{WorkflowID: "preview-" + itoa(id)})
		}, "the manifests of staging could not be compared: the workflow ended without saying how it went"},
		"it could not compare": {func(w winter, id int64) {
			w.lists(id, event.Comparison{Reason: "no such file"})
		}, "the manifests of staging could not be compared: no such file"},
		"it hides the new image": {func(w winter, id int64) { w.lists(id, nothing()) }, "1.2 is new, and the driver lists no image that changes"},
		"it leaves an environment out": {func(w winter, id int64) {
			c := nothing()
			c.Things = []event.ChangedThing{}
			w.report(event.RolloutPreviewed{PreviewID: id, Environments: []event.PreviewedEnvironment{
				{EnvironmentID: w.staging.ID, Changes: []event.FileChange{}, Compared: &c},
			}})
		}, "the driver has not compared the manifests of production"},
		"it previews instead": {func(w winter, id int64) {
			w.report(event.RolloutPreviewed{PreviewID: id, Environments: []event.PreviewedEnvironment{
				{EnvironmentID: w.staging.ID, Changes: []event.FileChange{}},
			}})
		}, "the driver has not compared the manifests of staging"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := comparing(t)
			c.report(w, w.asks(rollout.NewRollout{VersionSetID: w.release(2).ID}))
			w.want(w.beginsQueued(), true)
			w.plans(w.active(), planner.Pipeline, c.why)
		})
	}
	t.Run("it does not answer", func(t *testing.T) {
		t.Parallel()
		w := comparing(t)
		id := w.asks(rollout.NewRollout{VersionSetID: w.release(2).ID})
		w.handOver()
		w.now.Advance(2*time.Minute - time.Second)
		w.want(w.beginsQueued(), false)
		w.now.Advance(time.Second)
		w.want(w.beginsQueued(), true)
		r := w.active()
		w.plans(r, planner.Pipeline, "the manifests of staging could not be compared: there was no answer within 2m0s")
		w.want(w.countOf(`SELECT count(*) FROM cd_handoffs WHERE kind = 'cancel' AND workflow_id = $1`, "preview-"+itoa(id)), 1)
		w.lists(id, nothing()) // too late
		w.want(w.beginsQueued(), false)
		w.want(w.reload(r).Plan.Strategy, planner.Pipeline)
	})
	t.Run("another run answers", func(t *testing.T) {
		t.Parallel()
		w := comparing(t)
		id := w.asks(rollout.NewRollout{VersionSetID: w.release(2).ID})
		forged := w.emit(event.RolloutPreviewed{PreviewID: id, Environments: []event.PreviewedEnvironment{}}, "rollout-1")
		w.on.Domain(t.Context(), []bus.Delivery{{Event: forged, Attempt: 1}})
		w.want(w.beginsQueued(), false)
	})
}

// A trigger's rollout waits for the drivers in the queue, a newer version set takes its place, and one that waited behind another rollout
// is compared once that has ended: with what runs then.
func TestATriggerWaitsForAComparison(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0}`)
	second := w.release(2)
	w.want(w.decide(), []string{"queued: " + second.Name + " is new; it is in the queue of the application"})
	third := w.release(3)
	w.want(len(w.decide()), 1)
	w.want(w.countOf(`SELECT count(*) FROM cd_queued_rollouts WHERE state = 'pending'`), 1)
	asked := func() (id int64) {
		t.Helper()
		w.ok(w.pool.QueryRow(t.Context(), `SELECT max(id) FROM cd_rollout_previews`).Scan(&id))
		return id
	}
	w.want(w.beginsQueued(), false)
	w.lists(asked(), nothing())
	w.want(w.beginsQueued(), true)
	busy := w.active()
	w.want(busy.VersionSetID, third.ID)

	fourth := w.release(4)
	w.want(w.decide(), []string{"queued: " + fourth.Name + " is new; it is in the queue of the application"})
	w.succeed(busy)
	w.want(w.beginsQueued(), true) // asks the drivers
	w.want(w.countOf(`SELECT count(*) FROM cd_rollouts WHERE version_set_id = $1`, fourth.ID), 0)
	w.want(w.beginsQueued(), false)
	made, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: third.ID, Strategy: planner.ChooseQuick, Again: true,
	})
	w.ok(err)
	w.lists(asked(), nothing())
	w.succeed(*made.Rollout)
	w.want(w.beginsQueued(), true) // what it was compared with no longer runs
	w.want(w.countOf(`SELECT count(*) FROM cd_rollouts WHERE version_set_id = $1`, fourth.ID), 0)
	w.lists(asked(), nothing())
	w.want(w.beginsQueued(), true)
	w.plans(w.active(), planner.Pipeline, "1.4 is new, and the driver lists no image that changes")
}

// What the drivers compare for a rollout that another one replaces in the queue is stopped, and the application waits no longer for it. A
// comparison of another version set, which a replica of an earlier release leaves behind, counts for nothing.
func TestAComparisonThatIsReplaced(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	stopped := func(id int64) int {
		return w.countOf(`SELECT count(*) FROM cd_handoffs WHERE kind = 'cancel' AND workflow_id = $1`, "preview-"+itoa(id))
	}
	first := w.asks(rollout.NewRollout{VersionSetID: w.release(2).ID})
	w.handOver()
	w.now.Advance(time.Minute)
	third := w.release(3)
	second := w.asks(rollout.NewRollout{VersionSetID: third.ID})
	w.want(stopped(first), 1)
	w.want(w.beginsQueued(), false)
	w.handOver()
	w.now.Advance(time.Minute)
	w.want(w.beginsQueued(), true)
	r := w.active()
	w.want(r.VersionSetID, third.ID)
	w.plans(r, planner.Pipeline, "the manifests of staging could not be compared: there was no answer within 2m0s")
	w.want(stopped(second), 1)
	w.want(w.rollouts.Comparisons()["timeout"], int64(1))
	w.succeed(r)

	id := w.asks(rollout.NewRollout{VersionSetID: third.ID})
	_, err := w.pool.Exec(t.Context(), `UPDATE cd_queued_rollouts SET version_set_id = $1 WHERE state = 'pending'`, w.release(4).ID)
	w.ok(err)
	w.lists(id, nothing())
	w.want(w.beginsQueued(), true) // asks the drivers
	w.want(w.countOf(`SELECT count(*) FROM cd_queued_rollouts WHERE state = 'pending' AND comparison_id > $1`, id), 1)
}

// R4-19: what the drivers compare for a rollout in the queue is stopped when its application is archived.
func TestTheComparisonOfAnArchivedApplicationEnds(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	id := w.asks(rollout.NewRollout{VersionSetID: w.release(2).ID})
	w.handOver()
	_, err := w.setup.ArchiveApplication(t.Context(), user(), w.application.ID, "over")
	w.ok(err)
	w.want(w.countOf(`SELECT count(*) FROM cd_handoffs WHERE kind = 'cancel' AND workflow_id = $1`, "preview-"+itoa(id)), 1)
}

// The program of a quick sync that a comparison has allowed has the commit that was compared. A retry may deploy another one, so it goes
// by the pipeline.
func TestTheCommitThatWasCompared(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	c := nothing()
	c.Commit = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
	w.lists(w.asks(rollout.NewRollout{VersionSetID: w.set.ID}), c)
	w.want(w.beginsQueued(), true)
	w.handOver()
	r := w.active()
	w.plans(r, planner.Quick, "no workload and no configuration changes")
	last := w.engine.started[len(w.engine.started)-1]
	w.want(strings.Count(string(last.Inputs), c.Commit), 2)
	w.want(w.rollouts.Comparisons()["quick"], int64(1))
	w.report(event.RolloutStarted{RolloutID: r.ID})
	w.report(event.RolloutFailed{RolloutID: r.ID, Reason: "the branch has moved"})
	again, err := w.rollouts.RetryRollout(t.Context(), user(), r.ID, "")
	w.ok(err)
	w.want(again.Plan.Strategy, planner.Pipeline)
}

// A rollout that is parked ends only if the newer version set takes its place.
func TestAParkedRolloutStaysIfNothingTakesItsPlace(t *testing.T) {
	t.Parallel()
	w := comparing(t)
	policy := func(n core.NewerPolicy) {
		t.Helper()
		_, err := w.rollouts.SetRolloutPolicy(t.Context(), user(), core.RolloutPolicy{
			ApplicationID: w.application.ID, OnFailure: core.FailureStops, OnNewer: n,
		})
		w.ok(err)
	}
	made, err := w.rollouts.CreateRollout(t.Context(), user(), rollout.NewRollout{
		VersionSetID: w.set.ID, Strategy: planner.ChooseQuick, Again: true,
	})
	w.ok(err)
	r := *made.Rollout
	w.report(event.RolloutStarted{RolloutID: r.ID})
	_, err = w.pool.Exec(t.Context(), `UPDATE cd_rollouts SET state = 'paused' WHERE id = $1`, r.ID)
	w.ok(err)
	policy(core.NewerQueued)
	_, err = w.rollouts.CreateRollout(t.Context(), person(5), rollout.NewRollout{VersionSetID: w.release(2).ID})
	w.ok(err)
	policy(core.NewerSupersedes)
	w.trigger(core.TriggerVersion, `{"quiet_seconds":0}`)
	w.release(3)
	w.want(w.decide(), []string{
		"waiting: the manifests are compared before a rollout begins, and another request waits in the queue; it is looked at again",
	})
	w.want(w.reload(r).State, core.RolloutPaused)
	_, err = w.pool.Exec(t.Context(), `UPDATE cd_queued_rollouts SET state = 'dropped', outcome = 'x' WHERE state = 'pending'`)
	w.ok(err)
	w.now.Advance(time.Hour)
	w.want(len(w.decide()), 1)
	w.want(w.reload(r).State, core.RolloutCancelled)
	w.want(w.countOf(`SELECT count(*) FROM cd_queued_rollouts WHERE state = 'pending' AND comparison_id IS NOT NULL`), 1)
}

// D59: a process that is killed at any statement leaves a rollout that waits for a comparison which is asked for, or none.
func TestAComparisonSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	w := comparing(t)
	set := w.release(2)
	mortal, died := w.mortal(w.now)
	kill := func(act func(ctx context.Context) error, done func() bool) int {
		kills := 0
		for n := int64(2); n < 400 && !done(); n++ {
			died.left.Store(n)
			err := act(t.Context())
			died.left.Store(0)
			if err != nil {
				kills++
			}
			w.want(w.countOf(`SELECT count(*) FROM cd_queued_rollouts q WHERE comparison_id IS NOT NULL AND NOT EXISTS
				(SELECT FROM cd_handoffs h WHERE h.workflow_id = 'preview-' || q.comparison_id)`), 0)
		}
		return kills
	}
	asked := kill(func(ctx context.Context) error {
		_, err := mortal.rollouts.CreateRollout(ctx, person(5), rollout.NewRollout{VersionSetID: set.ID})
		return err
	}, func() bool { return w.countOf(`SELECT count(*) FROM cd_queued_rollouts`) == 1 })
	var id int64
	w.ok(w.pool.QueryRow(t.Context(), `SELECT comparison_id FROM cd_queued_rollouts`).Scan(&id))
	w.lists(id, event.Comparison{Workloads: 1, Things: []event.ChangedThing{{Kind: "image", Action: "changed", Object: "Deployment/api"}}})
	begun := kill(func(ctx context.Context) error {
		_, _, err := mortal.rollouts.BeginQueued(ctx)
		return err
	}, func() bool { return w.rolloutCount() == 2 })
	if asked < 10 || begun < 10 {
		t.Errorf("died %d and %d times; want at many statements", asked, begun)
	}
	w.plans(w.active(), planner.Pipeline, "image Deployment/api changed")
}
