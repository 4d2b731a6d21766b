package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The clock of "a while on degraded" (D13, E74) belongs to the rollout that has put a service where it is, and runs after
// that rollout is over. It is worked out anew, under the rollout's lock, from all that is known at the moment: whenever a
// health is seen that counts, when the rollout ends, and once more when it is due. So neither the order nor the number
// of words matters, and a word that comes late changes nothing.

// runClock starts, sets or stops the clock of the rollout.
func (t *tree) runClock(ctx context.Context) error {
	due, runs, err := t.degradedUntil(ctx)
	if err != nil {
		return err
	}
	if !runs {
		return t.tx.StopRollbackClock(ctx, t.rollout.ID)
	}
	return t.tx.ScheduleRollback(ctx, core.AutomaticRollback{RolloutID: t.rollout.ID, Cause: core.CauseDegraded}, due)
}

// degradedUntil is how long what the rollout has deployed may stay degraded; false where nothing is, or nobody wants to know.
func (t *tree) degradedUntil(ctx context.Context) (time.Time, bool, error) {
	// While it is under way its own program looks after it; one that was cancelled is in the hands of people.
	if t.rollout.State != core.RolloutCompleted && t.rollout.State != core.RolloutFailed {
		return time.Time{}, false, nil
	}
	since, degraded, err := t.tx.DegradedSince(ctx, t.rollout.ID)
	if err != nil || !degraded {
		return time.Time{}, false, err
	}
	policy, applies, err := t.rollbackPolicy(ctx)
	return since.Add(policy.DegradedAfter), applies && policy.OnDegraded, err
}

// putOff is that a clock that has run out should not have: by now nothing is degraded, or not for so long. It is set right,
// and says so.
func (t *tree) putOff(ctx context.Context, due *core.AutomaticRollback) (bool, error) {
	if due.Cause != core.CauseDegraded {
		return false, nil
	}
	until, runs, err := t.degradedUntil(ctx)
	if err != nil || runs && !until.After(t.cause.at) {
		return false, err
	}
	due.Outcome = "put off: not degraded for so long, or not any more"
	return true, t.runClock(ctx)
}

// lookAgain is how soon a rollback is looked at again that a newer rollout keeps waiting.
const lookAgain = time.Minute

// waitsForNewer is that the rollback of what is degraded has to wait for a newer rollout that is active. There is one
// rollout at a time (R14), and the newer one may be about to replace what is degraded: then nothing is owed any more. But it
// may as well end before it comes to that environment, and what is degraded there would stay so for ever: the policy has
// promised a rollback, at most once (D13), which was not made. So it stays owed, and is looked at again. After a failure it is
// otherwise: the person who began the newer rollout had seen the failure, and has decided.
func (t *tree) waitsForNewer(ctx context.Context, due *core.AutomaticRollback) (bool, error) {
	if due.Cause != core.CauseDegraded {
		return false, nil
	}
	// Under the application's lock, so that none begins between this look and the rollback.
	if _, err := t.tx.LockApplication(ctx, t.rollout.ApplicationID); err != nil {
		return false, err
	}
	active, err := t.tx.ActiveRollouts(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID})
	if err != nil {
		return false, err
	}
	r, busy := active[t.rollout.ApplicationID]
	if !busy {
		return false, nil
	}
	due.Outcome = fmt.Sprintf("put off: rollout_%d is %s", r.ID, r.State.Words())
	return true, t.tx.ScheduleRollback(
		ctx, core.AutomaticRollback{RolloutID: t.rollout.ID, Cause: core.CauseDegraded}, t.cause.at.Add(lookAgain),
	)
}
