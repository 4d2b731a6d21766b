package policy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// CallTx is the part of a transaction that keeps what policies decided about calls of Functions.
type CallTx interface {
	// AddCallRequest adds a decision; first is false if there is one with the same call id.
	AddCallRequest(ctx context.Context, r core.CallRequest) (first bool, err error)
	// LockCallRequest and LockCallRequestOf find a decision by its number and by its call id. NotFound for none.
	LockCallRequest(ctx context.Context, id int64) (core.CallRequest, error)
	LockCallRequestOf(ctx context.Context, callID string) (core.CallRequest, error)
	// SaveCallRequest writes state, policy, reason, decision and request.
	SaveCallRequest(ctx context.Context, r core.CallRequest) error
	// RestateCallRequest writes all that a decision about a call says, as AddCallRequest does.
	RestateCallRequest(ctx context.Context, r core.CallRequest) error
	// WithdrawCallRequests ends what a run waits for.
	WithdrawCallRequests(ctx context.Context, workflow string) error
	CountPendingCallRequests(ctx context.Context) (int, error)
	// CountTriedCallRequests counts the calls of a run that were permitted at once.
	CountTriedCallRequests(ctx context.Context, workflow string) (int, error)
	// CountSampledCallRequests counts the sampled calls since an instant, as far as a number.
	CountSampledCallRequests(ctx context.Context, since time.Time, most int) (int, error)
	// CallAnswersOf are those to some requests, oldest first.
	CallAnswersOf(ctx context.Context, organization int64, requests []int64) (map[int64][]core.CallAnswer, error)
	AddCallAnswer(ctx context.Context, request int64, a core.CallAnswer) error
	// AnnounceCallAnswer publishes the answer for the engine.
	AnnounceCallAnswer(ctx context.Context, r core.CallRequest, approved bool, reason string, at time.Time) error
}

// CallReads are what is looked up about calls.
type CallReads interface {
	// CallRequests are the latest first, at most 200; pending ones or all.
	CallRequests(ctx context.Context, organization int64, pending bool) ([]core.CallRequest, error)
	CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error)
	// CallRequestsSince is a page of them, as that of PolicyDecisionsSince.
	CallRequestsSince(ctx context.Context, organization int64, since time.Time, after SincePlace) ([]core.CallRequest, error)
	// CallRequestsByRollout are the latest of each rollout first, at most 100.
	CallRequestsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CallRequest, error)
	CallAnswersOf(ctx context.Context, organization int64, requests []int64) (map[int64][]core.CallAnswer, error)
}

// CallReported records what the engine says of a call, in the transaction that claims its event. Reports come more than once, and a later
// state is never taken back by an earlier one.
func CallReported(ctx context.Context, tx CallTx, r core.CallRequest) error {
	full := false
	if r.State == core.CallPending {
		count, err := tx.CountPendingCallRequests(ctx)
		if err != nil {
			return err
		}
		full = count >= core.MaxPendingCalls
	}
	if r.Tried() {
		count, err := tx.CountTriedCallRequests(ctx, r.WorkflowID)
		if err != nil || count >= core.MaxTriedCalls {
			return err
		}
	}
	if r.Sampled {
		count, err := tx.CountSampledCallRequests(ctx, r.CreatedAt.Add(-24*time.Hour), core.MaxSampledCalls)
		if err != nil || count >= core.MaxSampledCalls {
			return err
		}
		_, err = tx.AddCallRequest(ctx, r) // what is known of the call already says more
		return err
	}
	first, err := tx.AddCallRequest(ctx, r)
	if err != nil {
		return err
	}
	before, err := tx.LockCallRequestOf(ctx, r.CallID)
	if err != nil {
		return err
	}
	stricter := r.State == core.CallPending || r.State == core.CallDenied
	again := before.Tried() && stricter || before.Sampled && (stricter || r.Tried())
	if !first && before.WorkflowID == r.WorkflowID && again {
		// The run ended between the decision and the call, and the policies were changed before it was decided again.
		r.ID = before.ID
		if err := tx.RestateCallRequest(ctx, r); err != nil {
			return err
		}
		first, before = true, r
	}
	switch {
	case first && full:
		before.State = core.CallRefused
		why := fmt.Sprintf("%d calls of the organization wait for approvals already", core.MaxPendingCalls)
		before.Reason += "; " + why
		if err := tx.SaveCallRequest(ctx, before); err != nil {
			return err
		}
		return tx.AnnounceCallAnswer(ctx, before, false, why, r.CreatedAt)
	case first, r.State == core.CallPending, before.WorkflowID != r.WorkflowID:
		return nil
	case r.Tried() && before.State == core.CallPending: // a late word of a decision that was made again
		return nil
	case before.State != core.CallPending && before.State != core.CallApproved:
		return nil
	}
	if r.Decision.Verdict == "" { // it is about people, and the policies were not asked again
		r.Decision, r.Request = before.Decision, before.Request
	}
	r.ID = before.ID
	return tx.SaveCallRequest(ctx, r)
}

// AnswerCall is the answer of a member to a call that waits for an approval. With the last approval of its quorum, or with a refusal, the
// engine continues.
func (u *UseCases) AnswerCall(ctx context.Context, a core.Actor, request int64, approve bool, reason string) (core.CallRequest, error) {
	// Before it is looked up, which would reveal what exists.
	if err := a.MaySomewhere(core.ActionAnswerCall); err != nil {
		return core.CallRequest{}, err
	}
	if strings.TrimSpace(reason) == "" {
		return core.CallRequest{}, fault.InvalidFields(fault.Field{Name: "/reason", Problem: "missing; expected why"})
	}
	if err := core.CheckReason(reason); err != nil {
		return core.CallRequest{}, err
	}
	var r core.CallRequest
	err := core.Within(ctx, u.store, a, core.ActionAnswerCall, func(ctx context.Context, tx Tx) error {
		var err error
		r, err = u.answer(ctx, tx, a, request, approve, reason)
		return err
	})
	u.wake()
	return r, err
}

func (u *UseCases) answer(ctx context.Context, tx Tx, a core.Actor, request int64, approve bool, reason string) (core.CallRequest, error) {
	r, err := tx.LockCallRequest(ctx, request)
	if err != nil {
		return r, err
	}
	change := core.Change{
		Action: core.ActionAnswerCall, Subject: core.AccessSubject{Kind: core.ChangedCall, ID: r.ID, Name: r.Function}, Reason: reason,
		Detail: map[bool]string{true: "approved", false: "refused"}[approve] + " the call of " + r.Function + " by " + r.WorkflowID,
	}
	if change.ApplicationID, err = u.mayAnswer(ctx, tx, a, r); err != nil {
		return r, err
	}
	all, err := tx.CallAnswersOf(ctx, a.Organization, []int64{r.ID})
	if err != nil {
		return r, err
	}
	answers, now := all[r.ID], u.clock.Now()
	if err := r.MayAnswer(a, approve, answers, now); err != nil {
		return r, err
	}
	before := map[string]any{"state": r.State, "approvals": len(answers)}
	if err := tx.AddCallAnswer(ctx, r.ID, core.CallAnswer{Author: core.AuthorOf(a), Approves: approve, Reason: reason, At: now}); err != nil {
		return r, err
	}
	given := len(answers)
	switch {
	case !approve:
		r.State = core.CallRefused
	default:
		if given++; given >= r.Quorum {
			r.State = core.CallApproved
		}
	}
	if r.State != core.CallPending {
		if err := tx.SaveCallRequest(ctx, r); err != nil {
			return r, err
		}
		if err := tx.AnnounceCallAnswer(ctx, r, approve, reason, now); err != nil {
			return r, err
		}
	}
	return r, core.Record(ctx, tx, a, change, before, map[string]any{"state": r.State, "approvals": given})
}

// mayAnswer is nil when an actor may approve wherever the rollout of a run goes, and everywhere for a run that belongs to no rollout. It
// answers the application.
func (u *UseCases) mayAnswer(ctx context.Context, tx Tx, a core.Actor, r core.CallRequest) (int64, error) {
	if r.RolloutID == 0 {
		return 0, a.MayIn(core.ActionAnswerCall)
	}
	rollouts, err := tx.RolloutsByID(ctx, a.Organization, []int64{r.RolloutID})
	if err != nil {
		return 0, err
	}
	application := rollouts[r.RolloutID].ApplicationID
	targets, err := core.ApplicationTargets(ctx, tx, a.Organization, application)
	if err != nil {
		return 0, err
	}
	return application, a.MayIn(core.ActionAnswerCall, targets...)
}

// CallRequests are the latest first, at most 200; pending ones or all.
func (u *UseCases) CallRequests(ctx context.Context, a core.Actor, pending bool) ([]core.CallRequest, error) {
	return u.store.CallRequests(ctx, a.Organization, pending)
}

// CallRequestsByID are decisions about calls with what they were asked.
func (u *UseCases) CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error) {
	return u.store.CallRequestsByID(ctx, organization, ids)
}

// CallRequestsByRollout are the latest of each rollout first, at most 100.
func (u *UseCases) CallRequestsByRollout(
	ctx context.Context, organization int64, rollouts []int64,
) (map[int64][]core.CallRequest, error) {
	return u.store.CallRequestsByRollout(ctx, organization, rollouts)
}

// CallAnswersOf are the answers to some requests, oldest first.
func (u *UseCases) CallAnswersOf(ctx context.Context, organization int64, requests []int64) (map[int64][]core.CallAnswer, error) {
	return u.store.CallAnswersOf(ctx, organization, requests)
}

// announce publishes a version of a set for the engine, which decides about calls by it, if it is about calls or was until now.
func (u *UseCases) announce(ctx context.Context, tx Tx, before, now core.PolicySet) error {
	text := now.Text
	if !u.engine.AboutCalls(now) {
		if before.Version == 0 || !u.engine.AboutCalls(before) {
			return nil
		}
		text = ""
	}
	now.Text = text
	return tx.AnnouncePolicySet(ctx, now)
}

// MayAnswerCall is nil when an actor may approve a call as it stands.
func (u *UseCases) MayAnswerCall(ctx context.Context, a core.Actor, r core.CallRequest) error {
	if err := a.MaySomewhere(core.ActionAnswerCall); err != nil {
		return err
	}
	if now := u.clock.Now(); r.StateAt(now) != core.CallPending { // most were answered long ago, and need no query
		return r.MayAnswer(a, true, nil, now)
	}
	return u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if _, err := u.mayAnswer(ctx, tx, a, r); err != nil {
			return err
		}
		answers, err := tx.CallAnswersOf(ctx, a.Organization, []int64{r.ID})
		if err != nil {
			return err
		}
		return r.MayAnswer(a, true, answers[r.ID], u.clock.Now())
	})
}
