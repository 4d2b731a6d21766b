package domain

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/events"
)

// R4-01, R4-02: a process that is killed at any statement of a trigger's decision has begun nothing, or one rollout, which says what caused
// it; the next process decides what was left.
func TestADecisionSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	w := clocked(t)
	w.trigger(core.TriggerVersion, deployAtOnce)
	w.want(w.decide(), []string{})
	set := w.release(2)
	w.now.Advance(time.Minute)
	mortal, died := w.mortal(w.now)
	kills := w.diesAt(died, func() error {
		_, _, err := mortal.triggers.DecideDue(t.Context())
		return err
	}, func() { // what caused a rollout is stored with it
		w.want(w.countOf(`SELECT count(*) FROM cd_rollouts r WHERE NOT EXISTS
			(SELECT FROM cd_rollout_transitions t WHERE t.rollout_id = r.id AND t.event = 'create' AND t.triggered_by <> '')`), 0)
	})
	if kills < 10 {
		t.Errorf("died %d times; want at many statements", kills)
	}
	w.decide()
	w.want(w.decide(), []string{})
	w.want(w.rolloutCount(), 1)
	r := w.active()
	w.want(r.VersionSetID, set.ID)
	_, why := w.created(r)
	w.want(why, fmt.Sprintf("trigger version (version): set:%d", set.ID))
	w.verifyJournal(r)
}

// R4-02, R4-21: also a rollback, a rollout of its own, is begun once, by whichever process gets to it, and the rollout that failed
// is never forgotten.
func TestARollbackSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	w := clocked(t)
	r := w.upgrade()
	w.report(event.RolloutFailed{RolloutID: r.ID, Reason: "sync failed"})
	w.close()
	mortal, died := w.mortal(w.now)
	kills := w.diesAt(died, func() error {
		_, _, err := mortal.rollouts.RollBackDue(t.Context())
		return err
	}, func() { // a rollout was made with the note that the other one has been rolled back, or neither
		made := w.countOf(`SELECT count(*) FROM cd_rollouts`) - 2
		w.want(w.countOf(`SELECT count(*) FROM cd_automatic_rollbacks WHERE made_rollout_id > 0`), made)
	})
	if kills < 10 {
		t.Errorf("died %d times; want at many statements", kills)
	}
	w.nothingDue("after the rollback")
	back := w.expectOneRollback(r)
	w.handsOver(mortal, died, back)
	w.succeed(back)
	w.want(w.reload(back).State, core.RolloutCompleted)
	w.nothingDue("after the rollback has ended")
	w.want(w.rolloutCount(), 3)
}

// R4-02, R4-11: a process that is killed at any statement of a look for drift has asked nobody, or the driver once; one that is killed at
// any statement of the answer has stored all of it or nothing, and the trigger is signalled once.
func TestALookSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	w := drifting(t)
	w.trigger(core.TriggerDrift, `{}`)
	w.now.Advance(6 * time.Minute)
	const (
		previews = `SELECT count(*) FROM cd_rollout_previews WHERE drift_of IS NOT NULL`
		asked    = `SELECT count(*) FROM cd_drift_looks l JOIN cd_rollout_previews p ON p.id = l.preview_id WHERE p.drift_of = l.application_environment_id`
		signals  = `SELECT count(*) FROM cd_trigger_signals WHERE cause LIKE 'drift:%'`
		known    = `SELECT count(*) FROM cd_application_environment_reconciliations WHERE objects <> '[]'`
	)
	mortal, died := w.mortal(w.now)
	kills := w.diesAt(died, func() error {
		_, err := mortal.rollouts.LookForDriftDue(t.Context(), rollout.DriftPace{Every: 10 * time.Minute, Window: 5 * time.Minute})
		return err
	}, func() {
		w.want(w.countOf(previews), w.countOf(asked))
		_, err := w.pool.Exec(t.Context(), `UPDATE cd_drift_looks SET due_at = $1 WHERE due_at > $1 AND asked_at IS NULL`, w.now.Now())
		w.ok(err) // one that failed is put off
	})
	if kills < 10 {
		t.Errorf("died %d times while it asked; want at many statements", kills)
	}
	w.want(w.countOf(previews), 1)
	w.handOver()
	answer := w.emit(event.RolloutPreviewed{
		PreviewID: int64(w.countOf(`SELECT max(id) FROM cd_rollout_previews`)),
		Environments: []event.PreviewedEnvironment{{
			EnvironmentID: w.production.ID, Changes: []event.FileChange{},
			Compared: &event.Comparison{Workloads: 1, Things: []event.ChangedThing{replicas()}},
		}},
	}, "")
	mortal, died = w.mortal(w.now)
	on := events.New(mortal.intake, mortal.rollouts, mortal.forges, mortal.chats, mortal.inbox)
	kills = w.diesAt(died, func() error { return on.Domain(t.Context(), []bus.Delivery{{Event: answer, Attempt: 1}})[0] }, func() {
		w.want(w.countOf(known), w.countOf(signals))
	})
	if kills < 5 {
		t.Errorf("died %d times at the answer; want at many statements", kills)
	}
	w.deliver(answer) // again, as the bus may
	w.want([]int{w.countOf(known), w.countOf(signals), w.countOf(previews)}, []int{1, 1, 1})
	w.want(w.decide(), []string{"began: production differs from what was deployed"})
	w.want(w.decide(), []string{})
}
