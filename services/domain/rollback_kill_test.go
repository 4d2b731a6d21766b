package domain

import (
	"errors"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// expectOneRollback checks that a rollout was rolled back once, and the rollback is what the journal, the holds and the engine know once.
func (w winter) expectOneRollback(of core.Rollout) core.Rollout {
	w.t.Helper()
	w.want(w.rolloutCount(), 3)
	w.want(w.countOf(`SELECT count(*) FROM cd_rollouts WHERE rollback_of = $1`, of.ID), 1)
	back := w.active()
	w.want(back.VersionSetID, w.set.ID)
	w.want(w.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE rollout_id = $1 AND event = 'create'`, back.ID), 1)
	w.want(w.countOf(`SELECT count(*) FROM cd_promotion_holds WHERE rollout_id <> $1`, back.ID), 0)
	w.verifyJournal(of)
	w.verifyJournal(back)
	return back
}

// handsOver has a process that hands over to the engine die at each statement. The engine may be asked again, about the same run.
func (w winter) handsOver(mortal *service, died *crash, back core.Rollout) {
	w.t.Helper()
	kills := 0
	for n := int64(2); n < 200; n++ {
		died.left.Store(n)
		_, worked, err := mortal.handoffs.HandOver(w.t.Context(), w.engine)
		if died.left.Swap(0) > 1 && err == nil && !worked {
			break
		}
		kills++
		_, err = w.pool.Exec(w.t.Context(), `UPDATE cd_handoffs SET due_at = $1 WHERE due_at > $1`, w.now.Now()) // its claim has lapsed
		w.ok(err)
	}
	if kills < 5 {
		w.t.Errorf("died %d times while it handed over; want at many statements", kills)
	}
	w.handOver()
	var of []handoff.Workflow
	for _, s := range w.engine.started {
		if s.ID == "rollout-"+itoa(back.ID) {
			of = append(of, s)
		}
	}
	if len(of) == 0 {
		w.t.Fatal("the rollback was never handed over")
	}
	for _, s := range of[1:] { // what the engine answers as before
		w.want(string(s.Inputs), string(of[0].Inputs))
	}
	w.want(w.countOf(`SELECT count(*) FROM cd_rollouts WHERE id = $1 AND workflow_ref = 'run-of-rollout-' || $1::text`, back.ID), 1)
}

// R4-02: a rollback that a person has requested of a rollout under way is made whole or not at all, wherever the process is killed: the
// rollout is never ended without it. Requested once more, because the answer was lost, it is not made twice. It is handed over and comes to
// its end.
func TestARequestedRollbackSurvivesAKillAtEachStatement(t *testing.T) {
	long(t)
	t.Parallel()
	w := clocked(t)
	r := w.upgrade()
	mortal, died := w.mortal(w.now)
	request := func(s *service) error {
		_, err := s.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID, Reason: "errors"})
		return err
	}
	made := false
	kills := w.diesAt(died, func() error {
		if made {
			return nil
		}
		err := request(mortal)
		made = err == nil
		return err
	}, func() {
		if made {
			return
		}
		w.want(w.countOf(`SELECT count(*) FROM cd_rollouts`), 2)
		w.want(w.reload(r).State, core.RolloutInProgress)
		w.want(w.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE rollout_id = $1 AND event = 'cancel'`, r.ID), 0)
		w.want(w.countOf(`SELECT count(*) FROM cd_promotion_holds`), 0)
	})
	if kills < 20 {
		t.Errorf("died %d times; want at many statements", kills)
	}
	if err := request(w.service); !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Refused) {
		t.Errorf("requested once more: %v", errors.Unwrap(err))
	}
	back := w.expectOneRollback(r)
	w.want(w.countOf(`SELECT count(*) FROM cd_rollout_transitions WHERE rollout_id = $1 AND event = 'cancel'`, r.ID), 1)
	w.handsOver(mortal, died, back)
	w.succeed(back)
	w.want(w.reload(back).State, core.RolloutCompleted)
	w.nothingDue("after the rollback")
	w.want(w.rolloutCount(), 3)
}
