package rollout

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// DecideCheck is the answer of a person to a check whose program asks (D48): what it has found is inconclusive, or there is nothing to go
// by. It counts until the program begins again.
func (u *UseCases) DecideCheck(
	ctx context.Context, a core.Actor, n CheckNamed, phase core.CheckPhase, reason string,
) (core.Rollout, error) {
	// Before names are looked up, which would reveal what exists.
	if err := a.MaySomewhere(core.ActionDecideCheck); err != nil {
		return core.Rollout{}, err
	}
	if phase != core.CheckSuccess && phase != core.CheckFailure {
		return core.Rollout{}, fault.InvalidFields(fault.Field{
			Name: "/phase", Problem: fmt.Sprintf("found %q; expected success or failure", string(phase)),
		})
	}
	if strings.TrimSpace(reason) == "" {
		return core.Rollout{}, fault.InvalidFields(fault.Field{Name: "/reason", Problem: "missing; expected why"})
	}
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	return u.onCheck(ctx, a, core.ActionDecideCheck, n, func(ctx context.Context, t *tree, n CheckNamed) error {
		return t.decideCheck(ctx, n, phase, reason)
	})
}

// decideCheck is DecideCheck for a rollout that is locked.
func (t *tree) decideCheck(ctx context.Context, n CheckNamed, phase core.CheckPhase, reason string) error {
	p, err := t.passages(ctx)
	if err != nil {
		return err
	}
	for _, gate := range p.hold.Asking {
		for _, s := range p.entering(gate) {
			if s.Key != n.Key || s.EnvironmentID != n.EnvironmentID || !s.Asks || t.rollout.State.Terminal() {
				continue
			}
			_, err := t.tx.AddCheckReport(ctx, core.CheckReport{
				ApplicationID: t.rollout.ApplicationID, EnvironmentID: s.EnvironmentID, VersionSetID: t.rollout.VersionSetID, Key: s.Key,
				Phase: phase, Description: reason, Reporter: core.AuthorOf(t.cause.Actor), ObservedAt: t.cause.at, CreatedAt: t.cause.at,
			})
			if err != nil {
				return err
			}
			return t.tx.ScheduleReview(ctx, t.rollout.ID, t.cause.at)
		}
	}
	return fault.New(fault.Refused, "no requested passage of %s waits for a check %q there that asks a person", t.name(), n.Key)
}

// onCheck does something about a check of a rollout, for an actor that may do it in the check's environment.
func (u *UseCases) onCheck(
	ctx context.Context, a core.Actor, action core.Action, n CheckNamed, do func(context.Context, *tree, CheckNamed) error,
) (core.Rollout, error) {
	var result core.Rollout
	err := core.Within(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		n, err := n.find(ctx, tx, a.Organization)
		if err != nil {
			return err
		}
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, n.RolloutID)
		if err != nil {
			return err
		}
		environments, err := tx.EnvironmentsByID(ctx, a.Organization, []int64{n.EnvironmentID})
		if err != nil {
			return err
		}
		e, ok := environments[n.EnvironmentID]
		if !ok {
			return fault.New(fault.NotFound, "environment %d does not exist", n.EnvironmentID)
		}
		if err := a.MayIn(action, e.Target(t.rollout.ApplicationID)); err != nil {
			return err
		}
		if err := do(ctx, t, n); err != nil {
			return err
		}
		after, err := tx.RolloutsByID(ctx, a.Organization, []int64{n.RolloutID})
		result = after[n.RolloutID]
		return err
	})
	u.wake()
	return result, err
}
