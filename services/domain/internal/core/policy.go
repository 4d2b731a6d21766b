package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// RollbackPolicy is what an application does by itself about a rollout that failed, or whose services degrade (E74).
type RollbackPolicy struct {
	ApplicationID int64
	// OnFailed rolls back at once, however the rollout failed: a service that degraded is a failure like any other.
	OnFailed bool
	// OnDegraded rolls back when a service has been degraded for DegradedAfter, by the health cache, rollout or not (D13):
	// somebody may still want to look, or to mend it.
	OnDegraded    bool
	DegradedAfter time.Duration
	// InFull promotes a way back at once, without the gates by weight (D14), where its target has been live before. Argo does that by itself
	// only where the target is what still serves.
	InFull bool
}

// DefaultRollbackPolicy is that of an application that has none of its own.
func DefaultRollbackPolicy(application int64) RollbackPolicy {
	return RollbackPolicy{ApplicationID: application, OnFailed: true, OnDegraded: true, DegradedAfter: 30 * time.Minute}
}

// maxDegradedAfter bounds the wait: after a week nobody expects it any more.
const maxDegradedAfter = 7 * 24 * time.Hour

// AutomaticRollback is a rollback that a policy wants.
type AutomaticRollback struct {
	ID, RolloutID int64
	Cause         string
	// MadeRolloutID or Outcome is what came of it.
	MadeRolloutID int64
	Outcome       string
}

// The causes.
const (
	causeFailed   = "failed"
	causeDegraded = "degraded"
)

// SetRollbackPolicy gives an application its policy. It counts for what fails or degrades from now on; a clock
// that runs already may only be lengthened or stopped by it.
func (d *Domain) SetRollbackPolicy(ctx context.Context, a Actor, p RollbackPolicy) (Application, error) {
	if p.DegradedAfter < 0 || p.DegradedAfter > maxDegradedAfter {
		return Application{}, fault.InvalidFields(fault.Field{
			Name: "/degradedAfterSeconds", Problem: fmt.Sprintf("found %.0f; expected 0 to %.0f", p.DegradedAfter.Seconds(), maxDegradedAfter.Seconds()),
		})
	}
	var application Application
	err := d.by(ctx, a, ActionSetRollbackPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		return tx.SaveRollbackPolicy(ctx, p)
	})
	return application, err
}

// wantRollback schedules what the policy says about a rollout that has just failed. What changed nothing needs no way
// back, and a way back that fails is for people (D13).
func (t *tree) wantRollback(ctx context.Context) error {
	// changed is that a deployment began.
	changed := false
	for _, b := range t.environments {
		for _, dep := range b.deployments {
			changed = changed || dep.State != DeploymentPending && dep.StartedAt != nil
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
	if rollouts[t.rollout.ApplicationID].OnFailure == FailureRollsBack || policy.OnFailed {
		return t.tx.ScheduleRollback(ctx, AutomaticRollback{RolloutID: t.rollout.ID, Cause: causeFailed}, t.cause.at)
	}
	return t.runClock(ctx)
}

// rollbackPolicy is the policy for the rollout; false where none applies, for there is nothing to go back to, or the
// rollout is a way back itself.
func (t *tree) rollbackPolicy(ctx context.Context) (RollbackPolicy, bool, error) {
	if !slices.ContainsFunc(t.environments, func(b *branch) bool { return b.PreviousVersionSetID != 0 }) {
		return RollbackPolicy{}, false, nil
	}
	// Whether it is a rollback is derived, so the tree does not know (R18).
	derived, err := t.tx.RolloutsByID(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil || derived[t.rollout.ID].IsRollback {
		return RollbackPolicy{}, false, err
	}
	saved, err := t.tx.RollbackPolicies(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID})
	if err != nil {
		return RollbackPolicy{}, false, err
	}
	policy, own := saved[t.rollout.ApplicationID]
	if !own {
		policy = DefaultRollbackPolicy(t.rollout.ApplicationID)
	}
	return policy, true, nil
}

// RollBackDue carries out the next automatic rollback that is due; false when there was none. The rollout that is rolled
// back is over by then; should anything newer have begun, or the way back be refused, that is recorded, and people decide.
func (d *Domain) RollBackDue(ctx context.Context) (AutomaticRollback, bool, error) {
	organizations, err := d.store.OrganizationsWithDueRollbacks(ctx, d.clock.Now())
	if err != nil {
		return AutomaticRollback{}, false, err
	}
	for _, organization := range organizations {
		var due AutomaticRollback
		var ok bool
		err := d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			// The row stays locked until it is settled: other replicas skip it, and a crash leaves it due. Making the
			// rollout and settling are one commit, so it happens at most once (D13).
			if due, ok, err = tx.DueRollback(ctx, d.clock.Now()); err != nil || !ok {
				return err
			}
			t, err := lockTree(ctx, tx, cause{
				Actor: Actor{Organization: organization, Type: PrincipalPolicy}, at: d.clock.Now(),
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
			if err := d.rollBack(ctx, t, &due); err != nil {
				return err
			}
			return tx.SettleRollback(ctx, due)
		})
		if err != nil || ok {
			d.wake()
			return due, ok, err
		}
	}
	return AutomaticRollback{}, false, nil
}

func (d *Domain) rollBack(ctx context.Context, t *tree, due *AutomaticRollback) error {
	organization := t.cause.Organization
	// Somebody who has begun a newer rollout after a failure has decided already. One that begins after this look is met
	// under the lock of the application below: while it is active, planRollout refuses.
	newest, err := t.tx.RolloutsByApplication(ctx, organization, []int64{t.rollout.ApplicationID}, Page{First: 1})
	if err != nil {
		return err
	}
	// The rollout itself is among them, so there is a first. One that is over, and has not deployed what is degraded, was
	// no decision about that; one that is active was waited for.
	if r := newest[t.rollout.ApplicationID].Nodes[0]; r.ID != t.rollout.ID && due.Cause == causeFailed {
		due.Outcome = fmt.Sprintf("rollout_%d has begun since", r.ID)
		return nil
	}
	target, err := t.earlier(ctx, 0, Scope{})
	var p plan
	if err == nil {
		p, err = d.planRollout(ctx, t.tx, organization, target.ID, &wayBack{of: t.rollout.ID})
	}
	// Nothing has been written yet, so the transaction can still keep the outcome; trying again would be refused again.
	if forPeople(err) {
		due.Outcome = fault.Public(err)
		return nil
	}
	if err != nil {
		return err
	}
	made, err := d.createPlanned(ctx, t.tx, t.cause, p, because("automatic rollback of "+t.name(), "it "+map[string]string{causeFailed: "failed", causeDegraded: "stayed degraded"}[due.Cause]))
	due.MadeRolloutID = made.ID
	return err
}

// forPeople is an error that a policy would meet again and again, so that somebody has to decide.
func forPeople(err error) bool {
	return err != nil && slices.Contains([]fault.Class{fault.Refused, fault.NotFound, fault.Invalid}, fault.ClassOf(err))
}
