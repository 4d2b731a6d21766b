package core

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// What the rollback policy of an application is about to do is no secret: when, why, and with a way to stop it.

// RollbackOutlook is an automatic rollback as people see it.
type RollbackOutlook struct {
	AutomaticRollback
	// DueAt is when it begins; nil once it has been settled.
	DueAt *time.Time
	// Why says for people why it is due, or was.
	Why string
}

// RollbackState is what has become of an automatic rollback.
type RollbackState string

// The states.
const (
	// RollbackDue is one that begins at its time.
	RollbackDue RollbackState = "due"
	// RollbackStarted has made a rollout.
	RollbackStarted RollbackState = "started"
	// RollbackDropped will not happen: its outcome says why.
	RollbackDropped RollbackState = "dropped"
)

// State is what has become of it.
func (r AutomaticRollback) State() RollbackState {
	switch {
	case r.MadeRolloutID != 0:
		return RollbackStarted
	case r.Outcome != "":
		return RollbackDropped
	default:
		return RollbackDue
	}
}

// RollbackOutlooks are what policies want, or wanted, of rollouts; no key for one of which nothing is wanted.
func (d *Domain) RollbackOutlooks(ctx context.Context, organization int64, rollouts []int64) (map[int64]RollbackOutlook, error) {
	wanted, err := d.AutomaticRollbacksByRollout(ctx, organization, rollouts)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	ids := make([]int64, 0, len(wanted))
	for id := range wanted {
		ids = append(ids, id)
	}
	known, err := d.RolloutsByID(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	var applications []int64
	for _, r := range known {
		applications = append(applications, r.ApplicationID)
	}
	policies, err := d.RollbackPolicies(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	active, err := d.ActiveRollouts(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]RollbackOutlook, len(wanted))
	for id, one := range wanted {
		application := known[id].ApplicationID
		policy, own := policies[application]
		if !own {
			policy = DefaultRollbackPolicy(application)
		}
		one.Why = one.why(policy, active[application])
		all[id] = one
	}
	return all, nil
}

// why says for people why it is due. A newer rollout keeps one waiting that is about degradation.
func (o RollbackOutlook) why(policy RollbackPolicy, active Rollout) string {
	if o.Cause == causeFailed {
		return "the rollout failed, and the application's rollback policy rolls back at once"
	}
	why := "a service that the rollout deployed is degraded; the application's rollback policy rolls back after " + forPeopleToRead(policy.DegradedAfter)
	if o.State() == RollbackDue && active.ID != 0 {
		why += fmt.Sprintf(", and not before rollout_%d, which is %s, has ended", active.ID, active.State.Words())
	}
	return why
}

// forPeopleToRead is a duration without the zeros that Go writes.
func forPeopleToRead(d time.Duration) string {
	switch {
	case d == 0:
		return "no time"
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	default:
		return fmt.Sprintf("%d s", int(d/time.Second))
	}
}

// StopAutomaticRollback calls off the rollback that a policy has scheduled of a rollout. It stays off: what the rollout deployed is for
// people from then on.
func (d *Domain) StopAutomaticRollback(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	if err := checkReason(reason); err != nil {
		return Rollout{}, err
	}
	return d.change(ctx, a, ActionStopRollback, rollout, func(ctx context.Context, t *tree, s Standing) error {
		// The rollout is locked, and whoever carries the rollback out locks it too: exactly one of the two is first.
		due := s.outlook.AutomaticRollback
		due.Outcome = because("stopped by "+a.name(), reason)
		if err := t.tx.SettleRollback(ctx, due); err != nil {
			return err
		}
		return t.request(ctx, VerbStopRollback, "", reason)
	})
}

// refusesStop is why there is no automatic rollback to stop; nil where there is one.
func (s Standing) refusesStop() error {
	switch s.outlook.State() {
	case RollbackStarted:
		return fault.New(fault.Refused, "the automatic rollback of rollout_%d has begun already, as rollout_%d; cancel that one instead", s.Rollout.ID, s.outlook.MadeRolloutID)
	case RollbackDropped:
		return fault.New(fault.Refused, "no automatic rollback of rollout_%d is due any more: %s", s.Rollout.ID, s.outlook.Outcome)
	case RollbackDue:
		if s.outlook.ID == 0 {
			return fault.New(fault.Refused, "no automatic rollback of rollout_%d is due", s.Rollout.ID)
		}
	}
	return nil
}
