package rollout

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// change runs fn over a locked rollout, unless its standing refuses the action, and answers it as it is afterwards.
func (u *UseCases) change(
	ctx context.Context, a core.Actor, action core.Action, rollout int64, fn func(context.Context, *tree, core.Standing) error,
) (core.Rollout, error) {
	var changed core.Rollout
	err := core.Within(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, rollout)
		if err != nil {
			return err
		}
		s, err := t.standing(ctx)
		if err != nil {
			return err
		}
		if err := s.MayHere(a, action); err != nil {
			return err
		}
		if err := s.Refuses(action); err != nil {
			return err
		}
		if err := fn(ctx, t, s); err != nil {
			return err
		}
		// Read again, in the same transaction: the tree does not have what is derived.
		after, err := tx.RolloutsByID(ctx, a.Organization, []int64{rollout})
		changed = after[rollout]
		return err
	})
	u.wake()
	return changed, err
}

// standing is that of a locked rollout.
func (t *tree) standing(ctx context.Context) (core.Standing, error) {
	s := core.Standing{Rollout: t.rollout, UnderWay: t.underWay(), Began: t.began()}
	ids := make([]int64, len(t.environments))
	for i, b := range t.environments {
		s.Environments, ids[i] = append(s.Environments, b.RolloutEnvironment), b.EnvironmentID
	}
	var err error
	if s.Known, err = t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids); err != nil {
		return s, err
	}
	rows, err := t.tx.GateWordsByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return s, err
	}
	gates, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	s.Gates = gates[t.rollout.ID]
	s.Hold = core.HoldOf(rows[t.rollout.ID], s.Gates)
	if err != nil {
		return s, err
	}
	wanted, err := t.tx.AutomaticRollbacksByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	s.Outlook = wanted[t.rollout.ID]
	return s, err
}
