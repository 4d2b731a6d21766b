package rollout

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// AbortRollout asks the workflow to take back what is under way.
func (u *UseCases) AbortRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	return u.change(ctx, a, core.ActionAbortRollout, rollout, func(ctx context.Context, t *tree, _ core.Standing) error {
		return t.command(ctx, core.VerbAbort, reason)
	})
}

// RetryRollout starts an aborted rollout again from its first gate. One that has failed or was cancelled stays as it is
// (D16): a new rollout of the same version set begins, unless anything newer has.
func (u *UseCases) RetryRollout(ctx context.Context, a core.Actor, rollout int64, reason string) (core.Rollout, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Rollout{}, err
	}
	var result core.Rollout
	err := core.Within(ctx, u.store, a, core.ActionRetryRollout, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, rollout)
		if err != nil {
			return err
		}
		s, err := t.standing(ctx)
		if err != nil {
			return err
		}
		if err := s.MayHere(a, core.ActionRetryRollout); err != nil {
			return err
		}
		if err := s.Refuses(core.ActionRetryRollout); err != nil {
			return err
		}
		result = t.rollout
		if t.rollout.State.Terminal() {
			result, err = u.beginAgain(ctx, t, reason)
			return err
		}
		return t.retry(ctx, reason)
	})
	if err != nil {
		return core.Rollout{}, err
	}
	u.wake()
	after, err := u.store.RolloutsByID(ctx, a.Organization, []int64{result.ID})
	return after[result.ID], err
}

// retry continues an aborted rollout. Nothing else can: a resumption would leave the workflow waiting.
func (t *tree) retry(ctx context.Context, reason string) error {
	if err := t.command(ctx, core.VerbRetry, reason); err != nil || t.rollout.State != core.RolloutPaused {
		return err
	}
	return t.moveRollout(ctx, core.VerbResume, reason)
}

// beginAgain makes a rollout of what one that is over has not brought to its end.
func (u *UseCases) beginAgain(ctx context.Context, t *tree, reason string) (core.Rollout, error) {
	newest, err := t.tx.RolloutsByApplication(ctx, t.cause.Organization, []int64{t.rollout.ApplicationID}, core.Page{First: 1})
	if err != nil {
		return core.Rollout{}, err
	}
	if r := newest[t.rollout.ApplicationID].Nodes[0]; r.ID != t.rollout.ID {
		return core.Rollout{}, fault.New(
			fault.Refused, "rollout_%d has begun since; to promote the version set of %s again, create a rollout", r.ID, t.name(),
		)
	}
	scope, err := t.scopeOf(ctx)
	if err != nil {
		return core.Rollout{}, err
	}
	var back *rollbackOf
	if forward := t.rollout.RollbackOf == 0; !forward || !scope.all() {
		back = &rollbackOf{of: t.rollout.RollbackOf, scope: scope, forward: forward, again: true}
	}
	p, err := u.planRollout(ctx, t.tx, t.cause.Organization, t.rollout.VersionSetID, back, wish{repeats: t.rollout})
	if err != nil {
		return core.Rollout{}, err
	}
	if err := u.refuses(ctx, t.tx, t.cause, p); err != nil {
		return core.Rollout{}, err
	}
	// The pipeline may go elsewhere than when the rollout was made.
	if err := t.cause.MayIn(core.ActionRetryRollout, p.targets()...); err != nil {
		return core.Rollout{}, err
	}
	p.retry = true
	return u.createPlanned(ctx, t.tx, t.cause, p, core.Because("retry of "+t.name(), reason))
}

// underWay reports whether something is being deployed, so that there is something to take back.
func (t *tree) underWay() bool {
	for _, b := range t.environments {
		for _, dep := range b.deployments {
			if dep.State == core.DeploymentDeploying {
				return true
			}
		}
	}
	return false
}

// began reports whether something of the rollout has been deployed, or has begun to be.
func (t *tree) began() bool {
	for _, b := range t.environments {
		for _, dep := range b.deployments {
			if dep.Began() {
				return true
			}
		}
	}
	return false
}

// command records a request and sends it to the workflow.
func (t *tree) command(ctx context.Context, verb core.Verb, reason string) error {
	if err := t.request(ctx, verb, "", reason); err != nil {
		return err
	}
	return t.tx.Command(ctx, Command{Organization: t.cause.Organization, RolloutID: t.rollout.ID, Verb: verb, Reason: reason, At: t.cause.at})
}

// takenBack is how an abort has ended well.
const takenBack = "what was being deployed has been taken back"

// Aborted reports that everything under way has been taken back: the rollout stands.
type Aborted struct {
	RolloutID int64
	Reason    string
}

func (m Aborted) apply(ctx context.Context, u *UseCases, tx Tx, c cause, _ core.Inbound) error {
	t, err := lockTree(ctx, tx, c, m.RolloutID)
	if err != nil || t.rollout.State.Terminal() {
		return err
	}
	h, err := t.hold(ctx)
	if err != nil || !h.Aborted || h.TakenBack { // the event is late, and the rollout was retried meanwhile; or it has come twice
		return err
	}
	d, ends, err := t.wantedEnd(ctx)
	if err != nil {
		return err
	}
	if ends {
		d.Outcome = core.DeadlineMet
		if err := t.tx.SaveDeadline(ctx, d); err != nil {
			return err
		}
	}
	if ends && d.Action == core.DeadlineCancels {
		return u.endCancelled(ctx, t, d, takenBack)
	}
	if t.rollout.State == core.RolloutPaused { // it was, before it was aborted
		return t.request(ctx, core.VerbPause, "", m.Reason)
	}
	return t.moveRollout(ctx, core.VerbPause, m.Reason)
}
