package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// wantRollback schedules what the policy says about a rollout that has just failed. What changed nothing needs no
// rollback, and a rollback that fails is for people (D13).
func (t *tree) wantRollback(ctx context.Context) error {
	// changed reports whether a deployment began.
	changed := false
	for _, b := range t.environments {
		for _, dep := range b.deployments {
			changed = changed || dep.State != core.DeploymentPending && dep.StartedAt != nil
		}
	}
	if !changed {
		return nil
	}
	policy, applies, err := t.rollbackPolicy(ctx)
	if err != nil || !applies {
		return err
	}
	rollouts, err := t.tx.RolloutPolicies(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID})
	if err != nil {
		return err
	}
	if rollouts[t.rollout.ApplicationID].OnFailure == core.FailureRollsBack || policy.OnFailed {
		return t.tx.ScheduleRollback(ctx, core.AutomaticRollback{RolloutID: t.rollout.ID, Cause: core.CauseFailed}, t.cause.at)
	}
	return t.runClock(ctx)
}

// rollbackPolicy is the policy for the rollout; false where none applies, for there is nothing to go back to, or the
// rollout is a rollback itself.
func (t *tree) rollbackPolicy(ctx context.Context) (core.RollbackPolicy, bool, error) {
	if !slices.ContainsFunc(t.environments, func(b *branch) bool { return b.PreviousVersionSetID != 0 }) {
		return core.RollbackPolicy{}, false, nil
	}
	// Whether it is a rollback is derived, so the tree does not know (R18).
	derived, err := t.tx.RolloutsByID(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil || derived[t.rollout.ID].IsRollback {
		return core.RollbackPolicy{}, false, err
	}
	saved, err := t.tx.RollbackPolicies(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID})
	if err != nil {
		return core.RollbackPolicy{}, false, err
	}
	policy, own := saved[t.rollout.ApplicationID]
	if !own {
		policy = core.DefaultRollbackPolicy(t.rollout.ApplicationID)
	}
	return policy, true, nil
}

// RollBackDue carries out the next automatic rollback that is due; false when there was none. The rollout that is rolled
// back is over by then; should anything newer have begun, or the rollback be refused, that is recorded, and people decide.
func (u *UseCases) RollBackDue(ctx context.Context) (core.AutomaticRollback, bool, error) {
	organizations, err := u.store.OrganizationsWithDueRollbacks(ctx, u.clock.Now())
	if err != nil {
		return core.AutomaticRollback{}, false, err
	}
	for _, organization := range organizations {
		var due core.AutomaticRollback
		var ok bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			// The row stays locked until it is settled: other replicas skip it, and a crash leaves it due. Making the
			// rollout and settling are one commit, so it happens at most once (D13).
			if due, ok, err = tx.DueRollback(ctx, u.clock.Now()); err != nil || !ok {
				return err
			}
			t, err := lockTree(ctx, tx, cause{
				Actor: core.Actor{Organization: organization, Type: core.PrincipalPolicy}, at: u.clock.Now(),
				triggeredBy: fmt.Sprintf("rollback policy: rollout_%d %s", due.RolloutID, due.Cause),
			}, due.RolloutID)
			if err != nil {
				return err
			}
			if late, err := t.putOff(ctx, &due); err != nil || late {
				return err
			}
			if waits, err := t.waitsForNewer(ctx, &due); err != nil || waits {
				return err
			}
			if err := u.rollBack(ctx, t, &due); err != nil {
				return err
			}
			return tx.SettleRollback(ctx, due)
		})
		if err != nil || ok {
			u.wake()
			return due, ok, err
		}
	}
	return core.AutomaticRollback{}, false, nil
}

func (u *UseCases) rollBack(ctx context.Context, t *tree, due *core.AutomaticRollback) error {
	organization := t.cause.Organization
	// If a newer rollout was begun after the failure, people have decided already. One that begins after this look is met
	// under the lock of the application below: while it is active, planRollout refuses.
	newest, err := t.tx.RolloutsByApplication(ctx, organization, []int64{t.rollout.ApplicationID}, core.Page{First: 1})
	if err != nil {
		return err
	}
	// The rollout itself is among them, so there is a first. One that is over, and has not deployed what is degraded, was
	// no decision about that; one that is active was waited for.
	if r := newest[t.rollout.ApplicationID].Nodes[0]; r.ID != t.rollout.ID && due.Cause == core.CauseFailed {
		due.Outcome = fmt.Sprintf("rollout_%d has begun since", r.ID)
		return nil
	}
	target, err := t.earlier(ctx, 0, Scope{})
	var p plan
	if err == nil {
		p, err = u.planRollout(ctx, t.tx, organization, target.ID, &rollbackOf{of: t.rollout.ID}, wish{})
	}
	if err == nil {
		err = u.refuses(ctx, t.tx, t.cause, p)
	}
	// Nothing has been written yet, so the transaction can still keep the outcome; trying again would be refused again.
	if forPeople(err) {
		due.Outcome = fault.Public(err)
		return nil
	}
	if err != nil {
		return err
	}
	made, err := u.createPlanned(ctx, t.tx, t.cause, p, core.Because(
		"automatic rollback of "+t.name(), "it "+map[string]string{core.CauseFailed: "failed", core.CauseDegraded: "stayed degraded"}[due.Cause],
	))
	due.MadeRolloutID = made.ID
	return err
}

// forPeople reports whether a policy would meet the error again and again, so that a person has to decide.
func forPeople(err error) bool {
	return err != nil && slices.Contains([]fault.Class{fault.Refused, fault.NotFound, fault.Invalid}, fault.ClassOf(err))
}

// StopAutomaticRollback calls off the rollback that a policy has scheduled of a rollout. It stays off: what the rollout deployed is for
// people from then on.
func (u *UseCases) StopAutomaticRollback(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	return u.change(ctx, a, core.ActionStopRollback, rollout, func(ctx context.Context, t *tree, s core.Standing) error {
		if err := core.RefuseStopping(a); err != nil {
			return err
		}
		if strings.TrimSpace(reason) == "" {
			return fault.InvalidFields(fault.Field{
				Name: "/reason", Problem: "found none; expected why what the rollback would take back is to stay: it is kept in the journal",
			})
		}
		// The rollout is locked, and carrying out the rollback locks it too: exactly one of the two is first.
		due := s.Outlook.AutomaticRollback
		due.Outcome = core.Because("stopped by "+a.DisplayName(), reason)
		if err := t.tx.SettleRollback(ctx, due); err != nil {
			return err
		}
		return t.request(ctx, core.VerbStopRollback, "", reason)
	})
}

// The clock of "a while on degraded" (D13, E74) belongs to the rollout that has put a service where it is, and runs after
// that rollout is over. It is worked out anew, under the rollout's lock, from all that is known at the moment: whenever a
// health is seen that counts, when the rollout ends, and once more when it is due. So neither the order nor the number
// of events matters, and a late event changes nothing.

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

// degradedUntil is how long what the rollout has deployed may stay degraded; false if nothing is degraded or the policy ignores it.
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

// putOff reschedules a rollback that came due although the degradation has ended or restarted; it reports whether it
// did.
func (t *tree) putOff(ctx context.Context, due *core.AutomaticRollback) (bool, error) {
	if due.Cause != core.CauseDegraded {
		return false, nil
	}
	until, runs, err := t.degradedUntil(ctx)
	if err != nil || runs && !until.After(t.cause.at) {
		return false, err
	}
	due.Outcome = "put off: no longer degraded, or not for long enough"
	return true, t.runClock(ctx)
}

// lookAgain is how soon a rollback that waits for a newer rollout is checked again.
const lookAgain = time.Minute

// waitsForNewer reports whether the rollback must wait for an active newer rollout (R14). That one may replace what is
// degraded, which cancels the rollback, or end before it reaches the environment, so the rollback (at most one, D13)
// stays due and is checked again. After a failure, the person who started the newer rollout had seen it, and has
// decided.
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
