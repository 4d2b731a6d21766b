package core

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// NewerPolicy is what becomes of a version set that somebody wants to promote while a rollout of the application is active.
type NewerPolicy string

// The policies.
const (
	// NewerRefused refuses it: one at a time (R14).
	NewerRefused NewerPolicy = "refuse"
	// NewerQueued begins it when the active one is over; of several the latest asked for.
	NewerQueued NewerPolicy = "queue"
	// NewerSupersedes ends an older one that is parked, and begins it. One that moves is not interrupted.
	NewerSupersedes NewerPolicy = "supersede"
)

// Promotion is what came of the wish to promote a version set.
type Promotion struct {
	// Rollout is the one that was made; nil when it waits for the active one to be over.
	Rollout *Rollout
	Queued  *QueuedRollout
}

// QueuedRollout is a rollout that will begin when the active one is over.
type QueuedRollout struct {
	ID, ApplicationID, VersionSetID int64
	Requester                       Principal
	Reason                          string
	RequestedAt                     time.Time
	// MadeRolloutID or Outcome is what came of it.
	MadeRolloutID int64
	Outcome       string
}

// makeRoom lets the application's policy decide about the rollout that is active. A queued answer means that nothing is
// to be made now.
func (d *Domain) makeRoom(ctx context.Context, tx Tx, c cause, n NewRollout) (*QueuedRollout, error) {
	sets, err := tx.VersionSetsByID(ctx, c.Organization, []int64{n.VersionSetID})
	if err != nil {
		return nil, err
	}
	set, ok := sets[n.VersionSetID]
	if !ok {
		return nil, fault.New(fault.NotFound, "version set %d does not exist", n.VersionSetID)
	}
	active, err := tx.ActiveRollouts(ctx, c.Organization, []int64{set.ApplicationID})
	if err != nil {
		return nil, err
	}
	r, busy := active[set.ApplicationID]
	// Going back is no newer version set: there is a verb for it, which ends the active rollout.
	if !busy || set.ID <= r.VersionSetID {
		return nil, nil
	}
	policies, err := tx.RolloutPolicies(ctx, c.Organization, []int64{set.ApplicationID})
	if err != nil {
		return nil, err
	}
	switch policies[set.ApplicationID].OnNewer {
	case NewerQueued:
		q := QueuedRollout{ApplicationID: set.ApplicationID, VersionSetID: set.ID, Requester: c.principal(), Reason: n.Reason, RequestedAt: c.at}
		return &q, tx.QueueRollout(ctx, q)
	case NewerSupersedes:
		return nil, d.supersede(ctx, tx, c, r.ID, set)
	case NewerRefused:
	}
	return nil, nil // planRollout refuses, and says why
}

// supersede ends a rollout that is parked. It is locked before the application, like everywhere.
func (d *Domain) supersede(ctx context.Context, tx Tx, c cause, rollout int64, by VersionSet) error {
	t, err := lockTree(ctx, tx, c, rollout)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	gates, err := t.openGates(ctx)
	if err != nil {
		return err
	}
	if t.rollout.State != RolloutPaused && len(gates) == 0 {
		return fault.New(fault.Refused, "%s is %s and moves; it can be superseded while it is paused or waits for approval", t.name(), t.rollout.State.Words())
	}
	return d.cancel(ctx, t, "superseded by "+by.Name)
}

// BeginQueued begins the next rollout that has waited for another to be over; false when there was none. One that cannot
// begin any more is dropped with the reason, and left to people.
func (d *Domain) BeginQueued(ctx context.Context) (QueuedRollout, bool, error) {
	organizations, err := d.store.OrganizationsWithFreeQueue(ctx)
	if err != nil {
		return QueuedRollout{}, false, err
	}
	for _, organization := range organizations {
		var q QueuedRollout
		var ok bool
		err := d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			var err error
			if q, ok, err = tx.FreeQueuedRollout(ctx); err != nil || !ok {
				return err
			}
			p, err := d.planRollout(ctx, tx, organization, q.VersionSetID, nil)
			if forPeople(err) {
				q.Outcome = fault.Public(err)
				return tx.SettleQueuedRollout(ctx, q)
			}
			if err != nil {
				return err
			}
			// Whoever has asked for it is its requester still, also for its gates (D28).
			c := cause{
				Actor: Actor{Organization: organization, Type: q.Requester.Type, ID: q.Requester.ID}, at: d.clock.Now(),
				triggeredBy: "queue: asked for at " + q.RequestedAt.UTC().Format(time.RFC3339),
			}
			made, err := d.createPlanned(ctx, tx, c, p, q.Reason)
			if err != nil {
				return err
			}
			q.MadeRolloutID = made.ID
			return tx.SettleQueuedRollout(ctx, q)
		})
		if err != nil || ok {
			d.wake()
			return q, ok, err
		}
	}
	return QueuedRollout{}, false, nil
}

// FailurePolicy is what happens to the deployments under way when a rollout fails.
type FailurePolicy string

// The policies.
const (
	// FailureStops leaves everything as it is, for people to look at (E67); the rollback policy goes on from there.
	FailureStops FailurePolicy = "stop"
	// FailureAborts takes them back to the version that was stable before.
	FailureAborts FailurePolicy = "abort"
	// FailureRollsBack rolls back at once, however it failed.
	FailureRollsBack FailurePolicy = "rollback"
)

// RolloutPolicy is how an application's rollouts deal with failures and with each other.
type RolloutPolicy struct {
	ApplicationID int64
	OnFailure     FailurePolicy
	OnNewer       NewerPolicy
}

// DefaultRolloutPolicy is that of an application that has none of its own.
func DefaultRolloutPolicy(application int64) RolloutPolicy {
	return RolloutPolicy{ApplicationID: application, OnFailure: FailureStops, OnNewer: NewerRefused}
}

// SetRolloutPolicy gives an application its policy. It counts for rollouts that are made from now on.
func (d *Domain) SetRolloutPolicy(ctx context.Context, a Actor, p RolloutPolicy) (Application, error) {
	var application Application
	err := d.by(ctx, a, ActionSetRolloutPolicy, func(ctx context.Context, tx Tx) error {
		var err error
		if application, err = tx.LockApplication(ctx, p.ApplicationID); err != nil {
			return err
		}
		return tx.SaveRolloutPolicy(ctx, p)
	})
	return application, err
}
