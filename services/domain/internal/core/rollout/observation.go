package rollout

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// HealthSeen is a service's health as it was observed.
type HealthSeen struct{ core.ServiceHealth }

// Reconciled is what was observed to be in force of an application in an environment.
type Reconciled struct{ core.Reconciliation }

// ContactSeen reports whether the agent of an environment could be reached.
type ContactSeen struct{ core.Contact }

func (h HealthSeen) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	counts, err := tx.SaveHealth(ctx, h.ServiceHealth)
	if err != nil || !counts {
		return err
	}
	rollout, ok, err := tx.RolloutServing(ctx, h.ServiceID, h.EnvironmentID)
	if err != nil || !ok {
		return err
	}
	// Under the lock: of this word and the rollout's end, whichever comes second sees the other.
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil {
		return err
	}
	if !t.rollout.State.Terminal() {
		// The entrance of the next environment may depend on it.
		if err := tx.ReviewChecked(ctx, t.rollout.ID, h.EnvironmentID, c.at); err != nil {
			return err
		}
	}
	return t.runClock(ctx)
}

func (r Reconciled) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	if err := tx.SaveReconciliation(ctx, r.Reconciliation); err != nil || r.Drift == "" {
		return err
	}
	return tx.SignalDrift(ctx, r.ApplicationEnvironmentID, c.at)
}

func (o ContactSeen) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	news, err := tx.SaveContact(ctx, o.Contact)
	if err != nil || !news {
		return err
	}
	return tx.ReviewHealth(ctx, o.EnvironmentID, c.at)
}
