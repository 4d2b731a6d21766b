package rollout

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Promotion is what came of the wish to promote a version set.
type Promotion struct {
	// Rollout is the one that was made; nil when it waits for the active one to be over.
	Rollout *core.Rollout
	Queued  *core.QueuedRollout
}

// makeRoom lets the application's policy decide about the rollout that is active. A queued answer means that nothing is
// to be made now.
func (u *UseCases) makeRoom(ctx context.Context, tx Tx, c cause, n NewRollout) (*core.QueuedRollout, error) {
	sets, err := tx.VersionSetsByID(ctx, c.Organization, []int64{n.VersionSetID})
	if err != nil {
		return nil, err
	}
	set, ok := sets[n.VersionSetID]
	if !ok {
		return nil, fault.New(fault.NotFound, "version set %d does not exist", n.VersionSetID)
	}
	targets, err := core.ApplicationTargets(ctx, tx, c.Organization, set.ApplicationID)
	if err != nil {
		return nil, err
	}
	active, err := tx.ActiveRollouts(ctx, c.Organization, []int64{set.ApplicationID})
	if err != nil {
		return nil, err
	}
	r, busy := active[set.ApplicationID]
	// A rollout to a part of the pipeline needs the permission for that part only, unless it would end what goes to all of it.
	if err := c.MayIn(core.ActionCreateRollout, targets...); err != nil && (busy || n.Scope.all()) {
		return nil, err
	}
	// Going back is no newer version set: there is a verb for it, which ends the active rollout.
	if !busy || set.ID <= r.VersionSetID {
		return nil, nil
	}
	policies, err := tx.RolloutPolicies(ctx, c.Organization, []int64{set.ApplicationID})
	if err != nil {
		return nil, err
	}
	switch policies[set.ApplicationID].OnNewer {
	case core.NewerQueued:
		if !n.Scope.all() {
			return nil, fault.New(
				fault.Refused, "rollout_%d is active, and the application's policy queues newer ones; a rollout to some environments is not queued, so "+
					"create it once that one has ended", r.ID,
			)
		}
		q := core.QueuedRollout{
			ApplicationID: set.ApplicationID, VersionSetID: set.ID, Requester: c.Principal(), Reason: n.Reason, RequestedAt: c.at,
		}
		return &q, tx.QueueRollout(ctx, q)
	case core.NewerSupersedes:
		return nil, u.supersede(ctx, tx, c, r.ID, set)
	case core.NewerRefused:
	}
	return nil, nil // planRollout refuses, and says why
}

// supersede ends a rollout that is parked. It is locked before the application, like everywhere.
func (u *UseCases) supersede(ctx context.Context, tx Tx, c cause, rollout int64, by core.VersionSet) error {
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	gates, err := t.openGates(ctx)
	if err != nil {
		return err
	}
	if t.rollout.State != core.RolloutPaused && len(gates) == 0 {
		return fault.New(
			fault.Refused, "%s is %s and moves; it can be superseded while it is paused or waits for approval", t.name(), t.rollout.State.Words(),
		)
	}
	if err := u.mayEnd(ctx, t, c.Actor, core.ActionCreateRollout); err != nil {
		return err
	}
	return u.cancel(ctx, t, "superseded by "+by.Name)
}

// BeginQueued begins the next rollout that has waited for another to be over; false when there was none. One that cannot
// begin any more is dropped with the reason, and left to people.
func (u *UseCases) BeginQueued(ctx context.Context) (core.QueuedRollout, bool, error) {
	organizations, err := u.store.OrganizationsWithFreeQueue(ctx)
	if err != nil {
		return core.QueuedRollout{}, false, err
	}
	for _, organization := range organizations {
		var q core.QueuedRollout
		var ok bool
		err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			if q, ok, err = tx.FreeQueuedRollout(ctx); err != nil || !ok {
				return err
			}
			p, err := u.planRollout(ctx, tx, organization, q.VersionSetID, nil)
			// That the requester may not deploy any more comes before every other reason.
			if refused := mayStillDeploy(ctx, tx, organization, q.Requester, p.targets()); refused != nil {
				err = refused
			}
			// Its requester is still the one who queued it, also for its gates (D28).
			c := cause{
				Actor: core.Actor{Organization: organization, Type: q.Requester.Type, ID: q.Requester.ID}, at: u.clock.Now(),
				triggeredBy: "queue: asked for at " + q.RequestedAt.UTC().Format(time.RFC3339),
			}
			if err == nil {
				err = u.refuses(ctx, tx, c, p)
			}
			if forPeople(err) {
				q.Outcome = fault.Public(err)
				return tx.SettleQueuedRollout(ctx, q)
			}
			if err != nil {
				return err
			}
			made, err := u.createPlanned(ctx, tx, c, p, q.Reason)
			if err != nil {
				return err
			}
			q.MadeRolloutID = made.ID
			return tx.SettleQueuedRollout(ctx, q)
		})
		if err != nil || ok {
			u.wake()
			return q, ok, err
		}
	}
	return core.QueuedRollout{}, false, nil
}

// mayStillDeploy is nil, or a Refused that says why the member who asked for a queued rollout may not deploy any more (D50).
func mayStillDeploy(ctx context.Context, tx Tx, organization int64, requester core.Principal, targets []core.Target) error {
	if requester.Type != core.PrincipalUser && requester.Type != core.PrincipalAgent {
		return nil // a policy or a schedule, which has no role
	}
	members, err := tx.MembersByID(ctx, organization, []int64{requester.ID})
	if err != nil {
		return err
	}
	m, known := members[requester.ID]
	switch {
	case !known:
		return fault.New(fault.Refused, "%s %d, who asked for it, is not a member of the organization", requester.Type, requester.ID)
	case m.RemovedAt != nil:
		return fault.New(fault.Refused, "%s, who asked for it, was removed from the organization", m.Name)
	}
	grants, err := tx.GrantsByMember(ctx, organization, []int64{m.ID})
	if err != nil {
		return err
	}
	a := core.ActorOf(organization, m, grants[m.ID], nil)
	if a.MaySomewhere(core.ActionCreateRollout) != nil {
		return fault.New(fault.Refused, "%s, who asked for it, may not deploy any more: the role is %s", m.Name, m.Role)
	}
	if len(targets) == 0 { // the plan was refused before it was known where it goes
		return nil
	}
	if err := a.MayIn(core.ActionCreateRollout, targets...); err != nil {
		return fault.Because(err, fault.Refused, "%s, who asked for it, may not deploy there any more: %s", m.Name, fault.Public(err))
	}
	return nil
}
