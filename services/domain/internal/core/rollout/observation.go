package rollout

import (
	"context"
	"fmt"
	"slices"

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
		if err := h.notify(ctx, t); err != nil {
			return err
		}
	}
	return t.runClock(ctx)
}

// notify stores that checks of kind health of a rollout fail or pass in the environment, each failure once however many services it is of.
func (h HealthSeen) notify(ctx context.Context, t *tree) error {
	at := slices.IndexFunc(t.environments, func(b *branch) bool {
		return b.EnvironmentID == h.EnvironmentID && b.State == core.RolloutCompleted
	})
	if at < 0 || h.Health != core.HealthDegraded && h.Health != core.HealthHealthy {
		return nil
	}
	checks, err := t.tx.Checks(ctx, t.rollout.ID, t.rollout.VersionSetID)
	if err != nil {
		return err
	}
	checks.Pinned = slices.DeleteFunc(checks.Pinned, func(p core.PinnedCheck) bool {
		return p.Kind != core.CheckHealth || p.EnvironmentID != h.EnvironmentID
	})
	if len(checks.Pinned) == 0 {
		return nil
	}
	if checks.Observed, err = core.ObservedIn(ctx, t.tx, t.cause.Organization, []int64{h.EnvironmentID}); err != nil {
		return err
	}
	b := t.environments[at]
	place := core.CheckPlace{EnvironmentID: b.EnvironmentID, Completed: b.FinishedAt}
	for _, d := range b.deployments {
		place.Deployments = append(place.Deployments, *d)
	}
	for _, s := range checks.All([]core.CheckPlace{place}, t.cause.at) {
		n := core.Notification{
			Moment: core.MomentCheckFailed, At: h.ObservedAt, ApplicationID: t.rollout.ApplicationID, EnvironmentID: h.EnvironmentID,
			SubjectID: t.rollout.VersionSetID, Subject: s.Key, By: core.Principal{Type: core.PrincipalSystem}, Reason: s.Detail,
			Cause: fmt.Sprintf("health:%d:%d:%s:%d", t.rollout.ID, h.EnvironmentID, s.Key, h.ObservedAt.UnixNano()),
		}
		store := t.tx.CheckFailed
		if s.Phase == core.CheckSuccess {
			n.Moment, store = core.MomentCheckPassed, t.tx.CheckPassed
		} else if s.Phase != core.CheckFailure {
			continue
		}
		if err := store(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (r Reconciled) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	if err := tx.SaveReconciliation(ctx, r.Reconciliation); err != nil {
		return err
	}
	if r.Drift == "" {
		return tx.EndDrift(ctx, r.ApplicationEnvironmentID, c.at)
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
