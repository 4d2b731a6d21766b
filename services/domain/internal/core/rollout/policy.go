package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// maxDegradedAfter bounds the wait: after a week nobody expects it any more.
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
	var application core.Application
	err := core.By(ctx, u.store, a, core.ActionSetRollbackPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		return tx.SaveRollbackPolicy(ctx, p)
	})
	return application, err
}

// SetRolloutPolicy gives an application its policy. It counts for rollouts that are made from now on.
func (u *UseCases) SetRolloutPolicy(ctx context.Context, a core.Actor, p core.RolloutPolicy) (core.Application, error) {
	var application core.Application
	err := core.By(ctx, u.store, a, core.ActionSetRolloutPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		return tx.SaveRolloutPolicy(ctx, p)
	})
	return application, err
}
