package setup

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ArchivingInput is what ArchiveEnvironment and RestoreEnvironment are called with.
type ArchivingInput struct {
	ID     int64
	Reason string
}

// ArchiveApplication takes an application out of use. It is refused while a rollout is active or queued; repeating it is a no-op.
func (u *UseCases) ArchiveApplication(ctx context.Context, a core.Actor, application int64, reason string) (core.Application, error) {
	var archived core.Application
	err := core.Within(ctx, u.store, a, core.ActionArchiveApplication, func(ctx context.Context, tx Tx) error {
		app, err := tx.LockApplication(ctx, application)
		if err != nil {
			return err
		}
		archived = app
		if err := mayConfigure(ctx, tx, a, core.ActionArchiveApplication, application); err != nil {
			return err
		}
		if app.ArchivedAt != nil {
			return nil
		}
		active, err := tx.ActiveRollouts(ctx, a.Organization, []int64{application})
		if err != nil {
			return err
		}
		if r, busy := active[application]; busy {
			return core.RefuseArchivingApplication(app, r)
		}
		queued, err := tx.QueuedRollouts(ctx, a.Organization, []int64{application})
		if err != nil {
			return err
		}
		if q, waits := queued[application]; waits {
			now := u.clock.Now()
			q.State, q.Outcome, q.EndedAt = core.QueuedDropped, "the application was archived", &now
			if err := tx.SettleQueuedRollout(ctx, q); err != nil {
				return err
			}
			if err := endComparison(ctx, tx, a.Organization, q, u.clock.Now()); err != nil {
				return err
			}
		}
		now := u.clock.Now()
		if err := tx.ArchiveApplication(ctx, application, &now); err != nil {
			return err
		}
		err = tx.AddArchiving(ctx, core.Archiving{ApplicationID: application, Archived: true, Principal: a.Principal(), Reason: reason})
		if err != nil {
			return err
		}
		return recordArchiving(ctx, tx, a, core.Change{
			Action: core.ActionArchiveApplication, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: application, Name: app.Name},
			ApplicationID: application,
		}, reason, true)
	})
	return archived, err
}

// ArchiveEnvironment takes an environment out of use. It is refused while an active rollout goes there; repeating it is a no-op.
func (u *UseCases) ArchiveEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error) {
	a = a.Proposing(ArchivingInput{ID: environment, Reason: reason})
	var archived core.Environment
	err := core.Within(ctx, u.store, a, core.ActionArchiveEnvironment, func(ctx context.Context, tx Tx) error {
		// The lock waits for plans of rollouts, so none that goes there is made at the same time.
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		archived = e.Environment
		if err := a.MayIn(core.ActionArchiveEnvironment, e.Target(0)); err != nil {
			return err
		}
		if e.ArchivedAt != nil {
			return nil
		}
		active, err := tx.ActiveRolloutsByEnvironment(ctx, a.Organization, []int64{environment})
		if err != nil {
			return err
		}
		if r, busy := active[environment]; busy {
			return core.RefuseArchivingEnvironment(e.Environment, r)
		}
		now := u.clock.Now()
		if err := tx.ArchiveEnvironment(ctx, environment, &now); err != nil {
			return err
		}
		err = tx.AddArchiving(ctx, core.Archiving{EnvironmentID: environment, Archived: true, Principal: a.Principal(), Reason: reason})
		if err != nil {
			return err
		}
		retired := e
		retired.ArchivedAt = &now
		if err := u.announceEnvironment(ctx, tx, a.Organization, retired); err != nil {
			return err
		}
		if err := u.notify(ctx, tx, a, environment, core.MomentEnvironmentArchived, reason); err != nil {
			return err
		}
		return recordArchiving(ctx, tx, a, environmentChange(core.ActionArchiveEnvironment, e.Environment), reason, true)
	})
	u.wake()
	return archived, err
}

// RestoreApplication takes an archived application into use again; one that is not archived stays as it is. Its name was
// nobody else's meanwhile: the names of what is archived stay taken. Versions that came meanwhile were not taken.
func (u *UseCases) RestoreApplication(ctx context.Context, a core.Actor, application int64, reason string) (core.Application, error) {
	var restored core.Application
	err := core.Within(ctx, u.store, a, core.ActionRestoreApplication, func(ctx context.Context, tx Tx) error {
		var err error
		if restored, err = tx.LockApplication(ctx, application); err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, core.ActionRestoreApplication, application); err != nil || restored.ArchivedAt == nil {
			return err
		}
		restored.ArchivedAt = nil
		if err := tx.ArchiveApplication(ctx, application, nil); err != nil {
			return err
		}
		err = tx.AddArchiving(ctx, core.Archiving{ApplicationID: application, Principal: a.Principal(), Reason: reason})
		if err != nil {
			return err
		}
		return recordArchiving(ctx, tx, a, core.Change{
			Action: core.ActionRestoreApplication, Subject: core.AccessSubject{Kind: core.ChangedApplication, ID: application, Name: restored.Name},
			ApplicationID: application,
		}, reason, false)
	})
	return restored, err
}

// RestoreEnvironment takes an archived environment into use again; one that is not archived stays as it is. What was known of
// it is old, so it is onboarded anew and nothing is deployed there until it is ready. It is refused when an agent that it names has
// been revoked meanwhile.
func (u *UseCases) RestoreEnvironment(ctx context.Context, a core.Actor, environment int64, reason string) (core.Environment, error) {
	a = a.Proposing(ArchivingInput{ID: environment, Reason: reason})
	var restored core.Environment
	err := core.Within(ctx, u.store, a, core.ActionRestoreEnvironment, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		restored = e.Environment
		if err := a.MayIn(core.ActionRestoreEnvironment, e.Target(0)); err != nil || e.ArchivedAt == nil {
			return err
		}
		if err := Usable(ctx, u.drivers, tx, a.Organization, e); err != nil {
			return err
		}
		e.ArchivedAt = nil
		if err := tx.ArchiveEnvironment(ctx, environment, nil); err != nil {
			return err
		}
		if restored, err = u.onboard(ctx, tx, a.Organization, e); err != nil {
			return err
		}
		err = tx.AddArchiving(ctx, core.Archiving{EnvironmentID: environment, Principal: a.Principal(), Reason: reason})
		if err != nil {
			return err
		}
		if err := u.announceEnvironment(ctx, tx, a.Organization, e); err != nil {
			return err
		}
		if err := u.notify(ctx, tx, a, environment, core.MomentEnvironmentRestored, reason); err != nil {
			return err
		}
		return recordArchiving(ctx, tx, a, environmentChange(core.ActionRestoreEnvironment, restored), reason, false)
	})
	u.wake()
	return restored, err
}

// mayConfigure is nil when an actor may do something with an application wherever it goes.
func mayConfigure(ctx context.Context, tx Tx, a core.Actor, action core.Action, application int64) error {
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, application)
	if err != nil {
		return err
	}
	return a.MayIn(action, targets...)
}

// recordArchiving writes to the journal of changes that something was archived, or restored.
func recordArchiving(ctx context.Context, tx Tx, a core.Actor, c core.Change, reason string, archived bool) error {
	c.Reason = reason
	return core.Record(ctx, tx, a, c, map[string]any{"archived": !archived}, map[string]any{"archived": archived})
}

// endComparison has the run stopped that compares manifests for a rollout that is in the queue no more.
func endComparison(ctx context.Context, tx Tx, organization int64, q core.QueuedRollout, at time.Time) error {
	known, err := tx.PreviewsByID(ctx, organization, []int64{q.ComparisonID})
	if err != nil || known[q.ComparisonID].State != core.PreviewPending {
		return err
	}
	run := id.PreviewRun(q.ComparisonID)
	withdrawn, err := tx.WithdrawStart(ctx, run)
	if err != nil || withdrawn {
		return err
	}
	return tx.AddHandoff(ctx, core.Handoff{
		Kind: core.HandoffCancel, WorkflowID: run, Subject: core.HandoffPreview, SubjectID: q.ComparisonID, Reason: q.Outcome, DueAt: at,
	})
}
