package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Calls is what the API needs of package policy about calls of Functions.
type Calls interface {
	AnswerCall(ctx context.Context, a core.Actor, request int64, approve bool, reason string) (core.CallRequest, error)
	MayAnswerCall(ctx context.Context, a core.Actor, r core.CallRequest) error
	CallRequests(ctx context.Context, a core.Actor, pending bool) ([]core.CallRequest, error)
	CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error)
	CallRequestsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CallRequest, error)
	CallAnswersOf(ctx context.Context, organization int64, requests []int64) (map[int64][]core.CallAnswer, error)
}

// CallRequests are calls that policies did not permit at once.
func (q query) CallRequests(ctx context.Context, pending *bool) ([]model.CallRequest, error) {
	all, err := q.domain.Policies.CallRequests(ctx, loadersOf(ctx).actor, pending == nil || *pending)
	return wrapAll(all, model.WrapCallRequest), err
}

// CallRequest explains one.
func (q query) CallRequest(ctx context.Context, id string) (*model.CallRequest, error) {
	n, err := number("/id", model.KindCallRequest, id)
	if err != nil {
		return nil, err
	}
	return optional(ctx, loadersOf(ctx).callRequests, n, model.WrapCallRequest)
}

// CallRequests are those of the run of a rollout.
func (rolloutResolver) CallRequests(ctx context.Context, of *model.Rollout) ([]model.CallRequest, error) {
	return list(ctx, loadersOf(ctx).callRequestsOf, of.ID, model.WrapCallRequest)
}

// callRequest resolves those of CallRequest.
type callRequest struct{ domain Domain }

// State is what has become of it by now.
func (callRequest) State(ctx context.Context, r *model.CallRequest) (core.CallState, error) {
	return r.StateAt(loadersOf(ctx).clock.Now()), nil
}

// Rollout is that of the run.
func (callRequest) Rollout(ctx context.Context, r *model.CallRequest) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, r.RolloutID, model.WrapRollout)
}

// Answers are those so far.
func (callRequest) Answers(ctx context.Context, r *model.CallRequest) ([]model.CallAnswer, error) {
	return list(ctx, loadersOf(ctx).callAnswersOf, r.ID, model.WrapCallAnswer)
}

// ViewerCan is about approving it.
func (r callRequest) ViewerCan(ctx context.Context, of *model.CallRequest) ([]model.Ability, error) {
	a := loadersOf(ctx).actor
	return abilities(func(core.Action) error { return r.domain.Policies.MayAnswerCall(ctx, a, of.CallRequest) }, core.ActionAnswerCall)
}

// AnswerCall approves or refuses a call.
func (m mutation) AnswerCall(ctx context.Context, in model.AnswerCallInput) (p model.AnswerCallPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/callRequestId", model.KindCallRequest, in.CallRequestID)
	if err == nil {
		_, err = m.domain.Policies.AnswerCall(ctx, l.actor, n, in.Approve, in.Reason)
	}
	p.CallRequest, p.Errors, err = outcome(ctx, l.callRequests, n, model.WrapCallRequest, err)
	return p, err
}
