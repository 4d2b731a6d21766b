package core

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Deleting is archiving: nothing is purged (R51), and nothing in any cluster is touched. What is archived is in no list any
// more, and nothing new is made of it; by its name, its identifier and from its rollouts it is found for ever.

// Archiving is a row of the log of what was archived and restored. It is only ever added to (R39).
type Archiving struct {
	ID int64
	// One of these is 0.
	ApplicationID, EnvironmentID int64
	// Archived is false when it was restored.
	Archived bool
	Principal
	Reason    string
	CreatedAt time.Time
}

// ArchiveWrites changes what is in use.
type ArchiveWrites interface {
	// ArchiveApplication and ArchiveEnvironment write since when something is not used any more; nil restores it.
	ArchiveApplication(ctx context.Context, id int64, at *time.Time) error
	ArchiveEnvironment(ctx context.Context, id int64, at *time.Time) error
	AddArchiving(ctx context.Context, one Archiving) error
}

// ArchiveApplication takes an application out of use. It is refused while a rollout is active or queued; again is nothing.
func (d *Domain) ArchiveApplication(ctx context.Context, a Actor, application int64, reason string) (Application, error) {
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
		now := d.clock.Now()
		if err := tx.ArchiveApplication(ctx, application, &now); err != nil {
			return err
		}
		return tx.AddArchiving(ctx, Archiving{ApplicationID: application, Archived: true, Principal: a.principal(), Reason: reason})
	})
	return archived, err
}

// ArchiveEnvironment takes an environment out of use. It is refused while an active rollout goes there; again is nothing.
func (d *Domain) ArchiveEnvironment(ctx context.Context, a Actor, environment int64, reason string) (Environment, error) {
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
		now := d.clock.Now()
		if err := tx.ArchiveEnvironment(ctx, environment, &now); err != nil {
			return err
		}
		return tx.AddArchiving(ctx, Archiving{EnvironmentID: environment, Archived: true, Principal: a.principal(), Reason: reason})
	})
	return archived, err
}

// RestoreApplication takes an archived application into use again; one that is not archived stays as it is. Its name was
// nobody else's meanwhile: the names of what is archived stay taken. Versions that came meanwhile were not taken.
func (d *Domain) RestoreApplication(ctx context.Context, a Actor, application int64, reason string) (Application, error) {
	var restored Application
	err := d.by(ctx, a, ActionRestoreApplication, func(ctx context.Context, tx Tx) error {
		var err error
		if restored, err = tx.LockApplication(ctx, application); err != nil || restored.ArchivedAt == nil {
			return err
		}
		restored.ArchivedAt = nil
		if err := tx.ArchiveApplication(ctx, application, nil); err != nil {
			return err
		}
		return tx.AddArchiving(ctx, Archiving{ApplicationID: application, Principal: a.principal(), Reason: reason})
	})
	return restored, err
}

// RestoreEnvironment takes an archived environment into use again; one that is not archived stays as it is. What was known of
// it is old, so it is onboarded anew and nothing is deployed there until it is ready. It is refused when an agent that it names has
// been revoked meanwhile.
func (d *Domain) RestoreEnvironment(ctx context.Context, a Actor, environment int64, reason string) (Environment, error) {
	var restored Environment
	err := d.by(ctx, a, ActionRestoreEnvironment, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if restored = e.Environment; err != nil || e.ArchivedAt == nil {
			return err
		}
		if err := d.usable(ctx, tx, a.Organization, e); err != nil {
			return err
		}
		e.ArchivedAt = nil
		if err := tx.ArchiveEnvironment(ctx, environment, nil); err != nil {
			return err
		}
		if restored, err = d.onboard(ctx, tx, a.Organization, e); err != nil {
			return err
		}
		return tx.AddArchiving(ctx, Archiving{EnvironmentID: environment, Principal: a.principal(), Reason: reason})
	})
	d.wake()
	return restored, err
}

// usable is what an environment that was archived has against being used again: an agent that was revoked meanwhile. Nothing
// was asked of the request that could be mended, so it is no finding in a field but a refusal.
func (d *Domain) usable(ctx context.Context, tx Tx, organization int64, e BoundEnvironment) error {
	named, err := d.drivers.Now().Agents(e.Binding.DriverRef, e.Binding.DriverConfig)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Refused, "environment %q cannot be restored: its driver %s is not installed any more", e.Name, e.Binding.DriverRef)
	}
	if err != nil {
		return err
	}
	for _, n := range named {
		known, err := tx.AgentsByID(ctx, organization, []int64{n.Number})
		if err != nil {
			return err
		}
		if agent := known[n.Number]; agent.RevokedAt != nil {
			return fault.New(fault.Refused, "environment %q cannot be restored: %s", e.Name, fault.Public(agent.Open()))
		}
	}
	return nil
}

// refuseArchived is what an archived application has against anything new.
func refuseArchived(app Application) error {
	if app.ArchivedAt == nil {
		return nil
	}
	return fault.New(fault.Refused, "application %q was archived at %s", app.Name, app.ArchivedAt.UTC().Format(time.RFC3339))
}
