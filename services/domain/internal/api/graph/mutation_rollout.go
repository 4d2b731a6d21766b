package graph

import (
	"context"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// The verbs of an existing rollout.

// ApproveGate lets a rollout pass a gate.
func (m mutation) ApproveGate(ctx context.Context, in model.ResolveGateInput) (model.ResolveGatePayload, error) {
	return resolveGate(ctx, in, m.domain.Rollouts.ApproveGate)
}

// RejectGate ends a rollout at a gate.
func (m mutation) RejectGate(ctx context.Context, in model.ResolveGateInput) (model.ResolveGatePayload, error) {
	return resolveGate(ctx, in, m.domain.Rollouts.RejectGate)
}

func resolveGate(
	ctx context.Context, in model.ResolveGateInput, resolve func(context.Context, core.Actor, rollout.Resolution) (core.Rollout, error),
) (p model.ResolveGatePayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/rolloutId", model.KindRollout, in.RolloutID)
	if err == nil {
		_, err = resolve(ctx, l.actor, rollout.Resolution{RolloutID: n, GateID: in.GateID, Reason: orEmpty(in.Reason)})
	}
	p.Rollout, p.Errors, err = outcome(ctx, l.rollouts, n, model.WrapRollout, err)
	return p, err
}

// CancelRollout ends a rollout, with what its canceller wants to happen then.
func (m mutation) CancelRollout(ctx context.Context, in model.CancelRolloutInput) (p model.CancelRolloutPayload, err error) {
	if in.Then == nil {
		p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, in.Reason, m.domain.Rollouts.CancelRollout)
		return p, err
	}
	then := rollout.AfterCancel(strings.ToLower(string(*in.Then)))
	var back core.Rollout
	cancel := func(ctx context.Context, a core.Actor, n int64, reason string) (core.Rollout, error) {
		var err error
		back, err = m.domain.Rollouts.CancelThen(ctx, a, rollout.Cancellation{RolloutID: n, Then: then, Reason: reason})
		return back, err
	}
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, in.Reason, cancel)
	if err != nil || len(p.Errors) > 0 {
		return p, err
	}
	p.Rollback, err = optional(ctx, loadersOf(ctx).rollouts, back.ID, model.WrapRollout)
	return p, err
}

// CancelQueuedRollout takes a rollout out of the queue of its application.
func (m mutation) CancelQueuedRollout(
	ctx context.Context, in model.CancelQueuedRolloutInput,
) (p model.CancelQueuedRolloutPayload, err error) {
	n, err := number("/queuedRolloutId", model.KindQueuedRollout, in.QueuedRolloutID)
	var ended core.QueuedRollout
	if err == nil {
		ended, err = m.domain.Rollouts.CancelQueued(ctx, loadersOf(ctx).actor, n, orEmpty(in.Reason))
	}
	p.QueuedRollout, p.Errors, err = changed(ended, inField(err, "/queuedRolloutId"), model.WrapQueuedRollout)
	return p, err
}

// PauseRollout holds a rollout at a gate.
func (m mutation) PauseRollout(ctx context.Context, in model.PauseRolloutInput) (p model.PauseRolloutPayload, err error) {
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, in.Reason, m.domain.Rollouts.PauseRollout)
	return p, err
}

// ResumeRollout ends a hold.
func (m mutation) ResumeRollout(ctx context.Context, in model.ResumeRolloutInput) (p model.ResumeRolloutPayload, err error) {
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, in.Reason, m.domain.Rollouts.ResumeRollout)
	return p, err
}

// AbortRollout takes back what is being deployed.
func (m mutation) AbortRollout(ctx context.Context, in model.AbortRolloutInput) (p model.AbortRolloutPayload, err error) {
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, in.Reason, m.domain.Rollouts.AbortRollout)
	return p, err
}

// RetryRollout starts a rollout again, or begins another like it.
func (m mutation) RetryRollout(ctx context.Context, in model.RetryRolloutInput) (p model.RetryRolloutPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/rolloutId", model.KindRollout, in.RolloutID)
	var r core.Rollout
	if err == nil {
		r, err = m.domain.Rollouts.RetryRollout(ctx, l.actor, n, orEmpty(in.Reason))
		err = inField(err, "/rolloutId")
	}
	p.Rollout, p.Errors, err = outcome(ctx, l.rollouts, r.ID, model.WrapRollout, err)
	return p, err
}

// SetRolloutPolicy says how an application's rollouts deal with failures and with each other.
func (m mutation) SetRolloutPolicy(ctx context.Context, in model.SetRolloutPolicyInput) (p model.SetRolloutPolicyPayload, err error) {
	l := loadersOf(ctx)
	policy := core.RolloutPolicy{OnFailure: in.OnFailure, OnNewer: in.OnNewer}
	policy.ApplicationID, err = applicationNumber(ctx, m.domain.View, in.Application)
	if err == nil {
		_, err = m.domain.Rollouts.SetRolloutPolicy(ctx, l.actor, policy)
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, policy.ApplicationID, model.WrapApplication, inField(err, "/application"))
	return p, err
}

// apply is a verb that needs nothing but a reason.
func apply(
	ctx context.Context, id string, reason *string, verb func(context.Context, core.Actor, int64, string) (core.Rollout, error),
) (*model.Rollout, []model.UserError, error) {
	l := loadersOf(ctx)
	n, err := number("/rolloutId", model.KindRollout, id)
	if err == nil {
		_, err = verb(ctx, l.actor, n, orEmpty(reason))
		err = inField(err, "/rolloutId")
	}
	return outcome(ctx, l.rollouts, n, model.WrapRollout, err)
}

// RollbackRollout begins a rollout of an earlier version set.
func (m mutation) RollbackRollout(ctx context.Context, in model.RollbackRolloutInput) (p model.RollbackRolloutPayload, err error) {
	l := loadersOf(ctx)
	back := rollout.Rollback{Reason: orEmpty(in.Reason), BreakGlass: in.BreakGlass != nil && *in.BreakGlass}
	back.RolloutID, err = number("/rolloutId", model.KindRollout, in.RolloutID)
	if err == nil && in.VersionSetID != nil {
		back.VersionSetID, err = number("/versionSetId", model.KindVersionSet, *in.VersionSetID)
	}
	if err == nil {
		back.Scope, err = scope(ctx, m.domain.View, in.Environments, in.Exclude)
	}
	var made core.Rollout
	if err == nil {
		made, err = m.domain.Rollouts.RollbackRollout(ctx, l.actor, back)
	}
	if in.VersionSetID == nil { // with both, the message says which of them it is
		err = inField(err, "/rolloutId")
	}
	p.Rollout, p.Errors, err = outcome(ctx, l.rollouts, made.ID, model.WrapRollout, err)
	return p, err
}

// scope is where a rollout goes, by the names of environments; what is no identifier of one is taken for a name, which the use case
// checks.
func scope(ctx context.Context, v View, environments, exclude []string) (rollout.Scope, error) {
	organization := loadersOf(ctx).actor.Organization
	names := func(given []string) ([]string, error) {
		shown, err := v.EnvironmentsShownAs(ctx, organization, given)
		if err != nil {
			return nil, err
		}
		found := core.ByNames(given, shown)
		for i, one := range given {
			number, err := id.Parse(model.KindEnvironment, one)
			if err != nil {
				continue
			}
			known, err := v.EnvironmentsByID(ctx, organization, []int64{number})
			if err != nil {
				return nil, err
			}
			if e, ok := known[number]; ok {
				found[i] = e.Name
			}
		}
		return found, nil
	}
	only, err := names(environments)
	if err != nil {
		return rollout.Scope{}, err
	}
	except, err := names(exclude)
	return rollout.Scope{Only: only, Except: except}, err
}

// BreakGlass passes the approvals of a rollout.
func (m mutation) BreakGlass(ctx context.Context, in model.BreakGlassInput) (p model.BreakGlassPayload, err error) {
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, &in.Reason, m.domain.Rollouts.BreakGlass)
	return p, err
}

// StopAutomaticRollback calls off what a policy has scheduled.
func (m mutation) StopAutomaticRollback(
	ctx context.Context, in model.StopAutomaticRollbackInput,
) (p model.StopAutomaticRollbackPayload, err error) {
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, in.Reason, m.domain.Rollouts.StopAutomaticRollback)
	return p, err
}

// SetRollbackPolicy says what an application does by itself about a rollout that fails.
func (m mutation) SetRollbackPolicy(ctx context.Context, in model.SetRollbackPolicyInput) (p model.SetRollbackPolicyPayload, err error) {
	l := loadersOf(ctx)
	policy := core.RollbackPolicy{OnFailed: in.OnFailed, OnDegraded: in.OnDegraded, DegradedAfter: core.DefaultRollbackPolicy(0).DegradedAfter}
	if in.DegradedAfterSeconds != nil {
		policy.DegradedAfter = time.Duration(*in.DegradedAfterSeconds) * time.Second
	}
	policy.InFull = in.InFull != nil && *in.InFull
	policy.ApplicationID, err = applicationNumber(ctx, m.domain.View, in.Application)
	if err == nil {
		_, err = m.domain.Rollouts.SetRollbackPolicy(ctx, l.actor, policy)
	}
	p.Application, p.Errors, err = outcome(ctx, l.applications, policy.ApplicationID, model.WrapApplication, inField(err, "/application"))
	return p, err
}
