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
			return refuseArchivingApplication(app, r)
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
		active, err := tx.ActiveRolloutsByEnvironment(ctx, a.Organization, []int64{environment})
		if err != nil {
			return err
		}
		if r, busy := active[environment]; busy {
			return refuseArchivingEnvironment(e.Environment, r)
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
func (d *Domain) usable(ctx context.Context, reads Reads, organization int64, e BoundEnvironment) error {
	named, err := d.drivers.Now().Agents(e.Binding.DriverRef, e.Binding.DriverConfig)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Refused, "environment %q cannot be restored: its driver %s is not installed any more", e.Name, e.Binding.DriverRef)
	}
	if err != nil {
		return err
	}
	for _, n := range named {
		known, err := reads.AgentsByID(ctx, organization, []int64{n.Number})
		if err != nil {
			return err
		}
		if agent := known[n.Number]; agent.RevokedAt != nil {
			return fault.New(fault.Refused, "environment %q cannot be restored: %s", e.Name, fault.Public(agent.Open()))
		}
	}
	return nil
}

// refuseArchivingApplication is what an active rollout has against archiving its application.
func refuseArchivingApplication(app Application, active Rollout) error {
	return fault.New(fault.Refused, "application %q has an active rollout: rollout_%d is %s; cancel it first", app.Name, active.ID, active.State.Words())
}

// refuseArchivingEnvironment is what an active rollout has against archiving an environment that it goes to.
func refuseArchivingEnvironment(e Environment, active Rollout) error {
	return fault.New(fault.Refused, "rollout_%d, which is %s, goes to environment %q; cancel it first", active.ID, active.State, e.Name)
}

// EnvironmentStanding is what archiving and restoring an environment depend on.
type EnvironmentStanding struct {
	Environment Environment
	// Active is the newest rollout that goes there and is not over; its ID is 0 where there is none.
	Active Rollout
	// Unusable is what an archived one has against being restored; nil for nothing.
	Unusable error
}

// May is nil when an actor may do something with the environment as it stands.
func (s EnvironmentStanding) May(a Actor, action Action) error {
	if err := a.May(action); err != nil {
		return err
	}
	if action == ActionArchiveEnvironment && s.Environment.ArchivedAt == nil && s.Active.ID != 0 {
		return refuseArchivingEnvironment(s.Environment, s.Active)
	}
	if action == ActionRestoreEnvironment {
		return s.Unusable
	}
	return nil
}

// EnvironmentStandings are those of environments; no key for one that the organization does not have.
func (d *Domain) EnvironmentStandings(ctx context.Context, organization int64, environments []int64) (map[int64]EnvironmentStanding, error) {
	known, err := d.EnvironmentsByID(ctx, organization, environments)
	if err != nil {
		return nil, err
	}
	active, err := d.ActiveRolloutsByEnvironment(ctx, organization, environments)
	if err != nil {
		return nil, err
	}
	var archived []int64
	for id, e := range known {
		if e.ArchivedAt != nil {
			archived = append(archived, id)
		}
	}
	bindings, err := d.DriverBindingsByEnvironment(ctx, organization, archived)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]EnvironmentStanding, len(known))
	for id, e := range known {
		s := EnvironmentStanding{Environment: e, Active: active[id]}
		if of := bindings[id]; len(of) > 0 {
			err := d.usable(ctx, d, organization, BoundEnvironment{Environment: e, Binding: of[0]})
			if err != nil && !fault.Is(err, fault.Refused) {
				return nil, err
			}
			s.Unusable = err
		}
		all[id] = s
	}
	return all, nil
}

// refuseArchived is what an archived application has against anything new.
func refuseArchived(app Application) error {
	if app.ArchivedAt == nil {
		return nil
	}
	return fault.New(fault.Refused, "application %q was archived at %s", app.Name, app.ArchivedAt.UTC().Format(time.RFC3339))
}
