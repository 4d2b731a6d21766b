package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// maxDegradedAfter bounds the wait: after a week it is no longer expected.
const maxDegradedAfter = 7 * 24 * time.Hour

// SetRollbackPolicy gives an application its policy. It counts for what fails or degrades from now on; a clock
// that runs already may only be lengthened or stopped by it.
func (u *UseCases) SetRollbackPolicy(ctx context.Context, a core.Actor, p core.RollbackPolicy) (core.Application, error) {
	if p.DegradedAfter < 0 || p.DegradedAfter > maxDegradedAfter {
		return core.Application{}, fault.InvalidFields(fault.Field{
			Name: "/degradedAfterSeconds", Problem: fmt.Sprintf(
				"found %.0f; expected 0 to %.0f", p.DegradedAfter.Seconds(), maxDegradedAfter.Seconds(),
			),
		})
	}
	a = a.Proposing(p)
	var application core.Application
	err := core.Within(ctx, u.store, a, core.ActionSetRollbackPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, core.ActionSetRollbackPolicy, p.ApplicationID); err != nil {
			return err
		}
		all, err := tx.RollbackPolicies(ctx, a.Organization, []int64{p.ApplicationID})
		if err != nil {
			return err
		}
		before, own := all[p.ApplicationID]
		if !own {
			before = core.DefaultRollbackPolicy(p.ApplicationID)
		}
		if err := tx.SaveRollbackPolicy(ctx, p); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, policyChange(core.ActionSetRollbackPolicy, application), rollbackState(before), rollbackState(p))
	})
	return application, err
}

// SetRolloutPolicy gives an application its policy. It counts for rollouts that are made from now on.
func (u *UseCases) SetRolloutPolicy(ctx context.Context, a core.Actor, p core.RolloutPolicy) (core.Application, error) {
	a = a.Proposing(p)
	var application core.Application
	err := core.Within(ctx, u.store, a, core.ActionSetRolloutPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, core.ActionSetRolloutPolicy, p.ApplicationID); err != nil {
			return err
		}
		all, err := tx.RolloutPolicies(ctx, a.Organization, []int64{p.ApplicationID})
		if err != nil {
			return err
		}
		before, own := all[p.ApplicationID]
		if !own {
			before = core.DefaultRolloutPolicy(p.ApplicationID)
		}
		if err := tx.SaveRolloutPolicy(ctx, p); err != nil {
			return err
		}
		state := func(p core.RolloutPolicy) map[string]any {
			return map[string]any{"on_failure": p.OnFailure, "on_newer": p.OnNewer}
		}
		return core.Record(ctx, tx, a, policyChange(core.ActionSetRolloutPolicy, application), state(before), state(p))
	})
	return application, err
}

// mayConfigure is nil when an actor may do something with an application wherever it goes.
func mayConfigure(ctx context.Context, tx Tx, a core.Actor, action core.Action, application int64) error {
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, application)
	if err != nil {
		return err
	}
	return a.MayIn(action, targets...)
}

// policyChange is a row of the journal of changes about a policy of an application.
func policyChange(action core.Action, of core.Application) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: of.ID, Name: of.Name}, ApplicationID: of.ID,
	}
}

func rollbackState(p core.RollbackPolicy) map[string]any {
	return map[string]any{
		"on_failed": p.OnFailed, "on_degraded": p.OnDegraded, "degraded_after": int(p.DegradedAfter.Seconds()), "in_full": p.InFull,
	}
}
