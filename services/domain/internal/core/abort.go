package core

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Abort and retry (D18, E73). An abort takes what is under way back to the version that was stable before, and leaves the
// rollout standing there, paused; a retry starts it again from its first gate. Both are asked of the workflow: the journal
// tells the request, and the pause once it is true (D17).

// Command is something that a rollout's workflow is asked to do.
type Command struct {
	Organization, RolloutID int64
	// Verb is abort or retry.
	Verb   Verb
	Reason string
	At     time.Time
}

// AbortRollout asks the workflow to take back what is under way.
func (d *Domain) AbortRollout(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	if err := checkReason(reason); err != nil {
		return Rollout{}, err
	}
	return d.change(ctx, a, ActionAbortRollout, rollout, func(ctx context.Context, t *tree, _ Standing) error {
		return t.command(ctx, VerbAbort, reason)
	})
}

// RetryRollout starts an aborted rollout again from its first gate. One that has failed or was cancelled stays as it is
// (D16): a new rollout of the same version set begins, unless anything newer has.
func (d *Domain) RetryRollout(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	if err := checkReason(reason); err != nil {
		return Rollout{}, err
	}
	var result Rollout
	err := d.by(ctx, a, ActionRetryRollout, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: d.clock.Now()}, rollout)
		if err != nil {
			return err
		}
		s, err := t.standing(ctx)
		if err != nil {
			return err
		}
		if err := s.refuses(ActionRetryRollout); err != nil {
			return err
		}
		result = t.rollout
		if t.rollout.State.Terminal() {
			result, err = d.beginAgain(ctx, t, reason)
			return err
		}
		return t.retry(ctx, reason)
	})
	if err != nil {
		return Rollout{}, err
	}
	d.wake()
	after, err := d.RolloutsByID(ctx, a.Organization, []int64{result.ID})
	return after[result.ID], err
}

// retry lets an aborted rollout go on. Nobody else can: a resumption would leave the workflow waiting.
func (t *tree) retry(ctx context.Context, reason string) error {
	if err := t.command(ctx, VerbRetry, reason); err != nil || t.rollout.State != RolloutPaused {
		return err
	}
	return t.moveRollout(ctx, VerbResume, reason)
}

// beginAgain makes a rollout of what one that is over has not brought to its end.
func (d *Domain) beginAgain(ctx context.Context, t *tree, reason string) (Rollout, error) {
	newest, err := t.tx.RolloutsByApplication(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID}, Page{First: 1})
	if err != nil {
		return Rollout{}, err
	}
	if r := newest[t.rollout.ApplicationID].Nodes[0]; r.ID != t.rollout.ID {
		return Rollout{}, fault.New(fault.Refused, "rollout_%d has begun since; to promote the version set of %s again, create a rollout", r.ID, t.name())
	}
	var back *wayBack
	if t.rollout.RollbackOf != 0 {
		scope, err := t.scopeOf(ctx)
		if err != nil {
			return Rollout{}, err
		}
		back = &wayBack{of: t.rollout.RollbackOf, scope: scope, again: true}
	}
	p, err := d.planRollout(ctx, t.tx, t.cause.Organization, t.rollout.VersionSetID, back)
	if err != nil {
		return Rollout{}, err
	}
	p.retry = true
	return d.createPlanned(ctx, t.tx, t.cause, p, because("retry of "+t.name(), reason))
}

// underWay is that something is being deployed, so that there is something to take back.
func (t *tree) underWay() bool {
	for _, b := range t.environments {
		for _, dep := range b.deployments {
			if dep.State == DeploymentDeploying {
				return true
			}
		}
	}
	return false
}

// began is that something of the rollout has been deployed, or has begun to be.
func (t *tree) began() bool {
	for _, b := range t.environments {
		for _, dep := range b.deployments {
			if dep.began() {
				return true
			}
		}
	}
	return false
}

// began is that it has started, also where only its end was heard of. One that was cancelled before it started has not.
func (d Deployment) began() bool {
	return d.StartedAt != nil || d.State >= DeploymentDeploying && d.State <= DeploymentFailed
}

// command records a request and sends it to the workflow.
func (t *tree) command(ctx context.Context, verb Verb, reason string) error {
	if err := t.request(ctx, verb, "", reason); err != nil {
		return err
	}
	return t.tx.Command(ctx, Command{Organization: t.cause.Organization, RolloutID: t.rollout.ID, Verb: verb, Reason: reason, At: t.cause.at})
}

// RolloutAborted is that everything under way has been taken back: the rollout stands.
type RolloutAborted struct {
	RolloutID int64
	Reason    string
}

func (m RolloutAborted) apply(ctx context.Context, _ *Domain, tx Tx, c cause, _ Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	h, err := t.hold(ctx)
	if err != nil || !h.aborted || t.rollout.State == RolloutPaused { // the word comes late: somebody has retried meanwhile
		return err
	}
	return t.moveRollout(ctx, VerbPause, m.Reason)
}
