package domain

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
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

// R4-02, R4-21, R4-23: also a rollback, a rollout of its own, is begun once, by whichever process gets to it, and the rollout that failed
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
	w.want(w.rolloutCount(), 3)
	back := w.active()
	w.want(back.VersionSetID, w.set.ID)
	w.verifyJournal(r)
	w.verifyJournal(back)
}
