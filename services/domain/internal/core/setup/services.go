package setup

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// MaxServices bounds the services of an application, also those that are retired: a rollout has a deployment of each.
const MaxServices = 500

// AddService gives an application another service (D57). The application is set up again wherever its pipeline goes, since drivers look for
// each service there. Version sets go without the service until its sources have a version.
func (u *UseCases) AddService(
	ctx context.Context, a core.Actor, application int64, n NewService, reason string,
) (core.Service, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Service{}, err
	}
	keys, found := n.check(u.sources)
	if len(found) > 0 {
		return core.Service{}, fault.InvalidFields(found...)
	}
	var made core.Service
	err := core.Within(ctx, u.store, a, core.ActionAddService, func(ctx context.Context, tx Tx) error {
		app, err := tx.LockApplication(ctx, application)
		if err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, core.ActionAddService, application); err != nil {
			return err
		}
		if err := core.RefuseArchived(app); err != nil {
			return err
		}
		known, err := tx.ServicesByApplication(ctx, a.Organization, []int64{application})
		if err != nil {
			return err
		}
		if len(known[application]) >= MaxServices {
			return fault.New(fault.Refused, "%q has %d services already; at most %d", app.Name, len(known[application]), MaxServices)
		}
		made, err = tx.AddService(ctx, core.Service{ApplicationID: application, Name: n.Name, Description: n.Description})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "a service exists in %q already that is named %q, or shown as it; it may be retired", app.Name, n.Name)
		}
		if err != nil {
			return err
		}
		for i, src := range n.ArtifactSources {
			source := core.ArtifactSource{ServiceID: made.ID, Ref: src.Ref, Config: src.Config}
			if _, err := tx.AddArtifactSource(ctx, source, keys[i]); err != nil {
				return err
			}
		}
		if err := u.setUpAgain(ctx, tx, a.Organization, app); err != nil {
			return err
		}
		if err := core.Record(ctx, tx, a, serviceChange(core.ActionAddService, made, reason), nil, n.state()); err != nil {
			return err
		}
		return u.follow(ctx, tx, a, app, reason, keys...)
	})
	if err == nil {
		u.status.Changed()
	}
	u.wake()
	return made, err
}

// RetireService takes a service out of new version sets, and no new rollout deploys it, whatever its version set has. Its sources take no
// versions. What runs is left as it is, and a rollout under way continues with what it has pinned. The application is set up again without
// it. Repeating it is a no-op.
func (u *UseCases) RetireService(ctx context.Context, a core.Actor, service int64, reason string) (core.Service, error) {
	return u.serve(ctx, a, core.ActionRetireService, service, reason)
}

// RestoreService brings back a retired service. The application is set up again wherever its pipeline goes. Repeating it is a no-op.
func (u *UseCases) RestoreService(ctx context.Context, a core.Actor, service int64, reason string) (core.Service, error) {
	return u.serve(ctx, a, core.ActionRestoreService, service, reason)
}

func (u *UseCases) serve(ctx context.Context, a core.Actor, action core.Action, service int64, reason string) (core.Service, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Service{}, err
	}
	var changed core.Service
	err := core.Within(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		s, err := serviceOf(ctx, tx, a.Organization, service)
		if err != nil {
			return err
		}
		app, err := tx.LockApplication(ctx, s.ApplicationID)
		if err != nil {
			return err
		}
		if err := mayConfigure(ctx, tx, a, action, s.ApplicationID); err != nil {
			return err
		}
		if s, err = serviceOf(ctx, tx, a.Organization, service); err != nil { // as it is behind the lock
			return err
		}
		if changed = s; (s.RetiredAt != nil) == (action == core.ActionRetireService) {
			return nil
		}
		if action == core.ActionRestoreService {
			if err := core.RefuseArchived(app); err != nil {
				return err
			}
			changed.RetiredAt = nil
		} else {
			if err := u.mayRetire(ctx, tx, a.Organization, app, s); err != nil {
				return err
			}
			now := u.clock.Now().Truncate(time.Microsecond)
			changed.RetiredAt = &now
		}
		if changed, err = tx.RetireService(ctx, service, changed.RetiredAt); err != nil {
			return err
		}
		if app.ArchivedAt == nil {
			if err := u.setUpAgain(ctx, tx, a.Organization, app); err != nil {
				return err
			}
		}
		if err := tx.ReconsiderVersionSet(ctx, s.ApplicationID); err != nil {
			return err
		}
		if err := u.review(ctx, tx, a.Organization, s.ApplicationID); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, serviceChange(action, s, reason), servedState(s), servedState(changed))
	})
	if err == nil {
		u.status.Changed()
	}
	u.wake()
	return changed, err
}

// review has the passages of an application's active rollout evaluated: the health of a retired service keeps none closed.
func (u *UseCases) review(ctx context.Context, tx Tx, organization, application int64) error {
	active, err := tx.ActiveRollouts(ctx, organization, []int64{application})
	if r, busy := active[application]; err == nil && busy {
		err = tx.ScheduleReview(ctx, r.ID, u.clock.Now())
	}
	return err
}

// mayRetire is nil where another service stays: an application without any is archived instead.
func (u *UseCases) mayRetire(ctx context.Context, tx Tx, organization int64, app core.Application, s core.Service) error {
	known, err := tx.ServicesByApplication(ctx, organization, []int64{app.ID})
	if err != nil {
		return err
	}
	for _, other := range known[app.ID] {
		if other.ID != s.ID && other.RetiredAt == nil {
			return nil
		}
	}
	return fault.New(fault.Refused, "%q is the only service of %q that is in service; archive the application instead", s.Name, app.Name)
}

// setUpAgain has an application set up again wherever its pipeline goes, with the services that it has now; an environment that is not
// ready does so when it is. Where the application is ready it stays so until the setup says otherwise: what it has deployed so far can be
// deployed all the same. Rollouts under way keep what they have found.
func (u *UseCases) setUpAgain(ctx context.Context, tx Tx, organization int64, app core.Application) error {
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{app.ID})
	if err != nil || latest[app.ID].ID == 0 {
		return err
	}
	flow, err := u.flows.Read(latest[app.ID].Definition)
	if err != nil {
		return err
	}
	environments, err := tx.AllEnvironments(ctx)
	if err != nil {
		return err
	}
	before, err := tx.ApplicationEnvironmentsByApplication(ctx, organization, []int64{app.ID})
	if err != nil {
		return err
	}
	for _, step := range flow.Deploys {
		e, known := environments[step.Environment]
		if !known {
			continue // it was archived; a rollout says so
		}
		i := slices.IndexFunc(before[app.ID], func(ae core.ApplicationEnvironment) bool { return ae.EnvironmentID == e.ID })
		if i >= 0 && before[app.ID][i].Readiness == core.ReadinessReady && e.Readiness == core.ReadinessReady {
			if _, err := u.setUpAs(ctx, tx, organization, app, e, before[app.ID][i], step, core.ReadinessReady); err != nil {
				return err
			}
			continue
		}
		ae, err := tx.WantSetup(ctx, app.ID, e.ID, waitsFor(e.Environment))
		if err != nil {
			return err
		}
		if e.Readiness != core.ReadinessReady {
			continue
		}
		if _, err := u.setUp(ctx, tx, organization, app, e, ae, step); err != nil {
			return err
		}
	}
	return nil
}

func serviceOf(ctx context.Context, tx Tx, organization, id int64) (core.Service, error) {
	known, err := tx.ServicesByID(ctx, organization, []int64{id})
	if err != nil {
		return core.Service{}, err
	}
	s, ok := known[id]
	if !ok {
		return s, fault.New(fault.NotFound, "service %d does not exist", id)
	}
	return s, nil
}

func serviceChange(action core.Action, s core.Service, reason string) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedService, ID: s.ID, Name: s.Name}, ApplicationID: s.ApplicationID,
		Reason: reason,
	}
}

// servedState is what the journal of changes keeps of whether a service is in service.
func servedState(s core.Service) map[string]any {
	return map[string]any{"name": s.Name, "retired": s.RetiredAt != nil}
}
