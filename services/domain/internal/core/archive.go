package core

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Deleting is archiving: nothing is purged (R51), and nothing in any cluster is touched. What is archived is in no list any
// more, and nothing new is made of it; by its name, its identifier and from its rollouts it is found for ever.

// ArchiveApplication takes an application out of use. It is refused while a rollout is active or queued; again is nothing.
func (d *Domain) ArchiveApplication(ctx context.Context, a Actor, application int64) (Application, error) {
	var archived Application
	err := d.by(ctx, a, ActionArchiveApplication, func(ctx context.Context, tx Tx) error {
		app, err := tx.LockApplication(ctx, application)
		if err != nil {
			return err
		}
		archived = app
		if app.ArchivedAt != nil {
			return nil
		}
		active, err := tx.ActiveRollouts(ctx, a.Organization, []int64{application})
		if err != nil {
			return err
		}
		if r, busy := active[application]; busy {
			return fault.New(fault.Refused, "application %q has an active rollout: rollout_%d is %s; cancel it first", app.Name, r.ID, r.State)
		}
		queued, err := tx.QueuedRollouts(ctx, a.Organization, []int64{application})
		if err != nil {
			return err
		}
		if q, waits := queued[application]; waits {
			q.Outcome = "the application was archived"
			if err := tx.SettleQueuedRollout(ctx, q); err != nil {
				return err
			}
		}
		return tx.ArchiveApplication(ctx, application, d.clock.Now())
	})
	return archived, err
}

// ArchiveEnvironment takes an environment out of use. It is refused while an active rollout goes there; again is nothing.
func (d *Domain) ArchiveEnvironment(ctx context.Context, a Actor, environment int64) (Environment, error) {
	var archived Environment
	err := d.by(ctx, a, ActionArchiveEnvironment, func(ctx context.Context, tx Tx) error {
		// The lock waits for whoever plans a rollout, so none that goes there is made beside this.
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		archived = e.Environment
		if e.ArchivedAt != nil {
			return nil
		}
		active, err := tx.Rollouts(ctx, a.Organization, RolloutFilter{
			EnvironmentID: environment, States: []RolloutState{RolloutPending, RolloutInProgress, RolloutPaused},
		}, Page{First: 1})
		if err != nil {
			return err
		}
		if len(active.Nodes) > 0 {
			r := active.Nodes[0]
			return fault.New(fault.Refused, "rollout_%d, which is %s, goes to environment %q; cancel it first", r.ID, r.State, e.Name)
		}
		return tx.ArchiveEnvironment(ctx, environment, d.clock.Now())
	})
	return archived, err
}

// refuseArchived is what an archived application has against anything new.
func refuseArchived(app Application) error {
	if app.ArchivedAt == nil {
		return nil
	}
	return fault.New(fault.Refused, "application %q was archived at %s", app.Name, app.ArchivedAt.UTC().Format(time.RFC3339))
}
