package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func callRequest(r query.CallRequest) (core.CallRequest, error) {
	c := core.CallRequest{
		ID: r.ID, WorkflowID: r.WorkflowID, CallID: r.CallID, Function: r.Function, State: core.CallState(r.State), Policy: r.Policy,
		Reason: r.Reason, Group: r.ApproverGroup, Quorum: int(r.Quorum), RequesterMay: r.RequesterMay, ExpiresAt: r.ExpiresAt, Request: r.Request,
		Sampled: r.Sampled, CreatedAt: r.CreatedAt,
	}
	if r.RolloutID != nil {
		c.RolloutID = *r.RolloutID
	}
	if err := json.Unmarshal(r.Decision, &c.Decision); err != nil {
		return c, fmt.Errorf("read the decision about a call %d: %w", r.ID, err)
	}
	return c, nil
}

func callRequests(rows []query.CallRequest) ([]core.CallRequest, error) {
	all := make([]core.CallRequest, len(rows))
	for i, row := range rows {
		var err error
		if all[i], err = callRequest(row); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// CallRequests implements policy.CallReads.
func (r Reads) CallRequests(ctx context.Context, organization int64, pending bool) (all []core.CallRequest, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		read := q.CallRequests
		if pending {
			read = q.PendingCallRequests
		}
		rows, err := read(ctx, organization)
		if err != nil {
			return pg.Classify(err, "read decisions about calls")
		}
		all, err = callRequests(rows)
		return err
	})
	return all, err
}

// CallRequestsSince implements policy.CallReads.
func (r Reads) CallRequestsSince(
	ctx context.Context, organization int64, since time.Time, after policy.SincePlace,
) (all []core.CallRequest, err error) {
	err = r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.CallRequestsSince(ctx, query.CallRequestsSinceParams{
			OrganizationID: organization, Since: since, Before: after.At, BeforeID: after.ID,
		})
		if err != nil {
			return pg.Classify(err, "read decisions about calls since %s", since)
		}
		all, err = callRequests(rows)
		return err
	})
	return all, err
}

// CallRequestsByID implements policy.CallReads.
func (r Reads) CallRequestsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.CallRequest, error) {
	found := map[int64]core.CallRequest{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.CallRequestsByID(ctx, organization, ids)
		if err != nil {
			return pg.Classify(err, "read decisions about calls")
		}
		all, err := callRequests(rows)
		for _, one := range all {
			found[one.ID] = one
		}
		return err
	})
	return found, err
}

// CallRequestsByRollout implements policy.CallReads.
func (r Reads) CallRequestsByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CallRequest, error) {
	found := map[int64][]core.CallRequest{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.CallRequestsByRollout(ctx, rollouts, organization)
		if err != nil {
			return pg.Classify(err, "read decisions about calls of rollouts")
		}
		for _, row := range rows {
			one, err := callRequest(row.CallRequest)
			if err != nil {
				return err
			}
			found[one.RolloutID] = append(found[one.RolloutID], one)
		}
		return nil
	})
	return found, err
}

// CallAnswersOf implements policy.CallReads and policy.CallTx.
func (r Reads) CallAnswersOf(ctx context.Context, organization int64, requests []int64) (map[int64][]core.CallAnswer, error) {
	found := map[int64][]core.CallAnswer{}
	err := r.Run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.CallAnswers(ctx, organization, requests)
		for _, row := range rows {
			found[row.CallRequestID] = append(found[row.CallRequestID], core.CallAnswer{
				Author: author(row.PrincipalType, row.PrincipalID, row.PrincipalName), Approves: row.Approves, Reason: row.Reason, At: row.CreatedAt,
			})
		}
		return pg.Classify(err, "read answers to calls")
	})
	return found, err
}

// AddCallRequest implements policy.CallTx.
func (w Writes) AddCallRequest(ctx context.Context, r core.CallRequest) (first bool, err error) {
	decision, request, err := encodedCall(r)
	if err != nil {
		return false, err
	}
	ids, err := w.Q.InsertCallRequest(ctx, query.InsertCallRequestParams{
		OrganizationID: w.Entered, WorkflowID: r.WorkflowID, CallID: r.CallID, RolloutID: r.RolloutID, Function: r.Function,
		State: string(r.State), Policy: r.Policy, Reason: r.Reason, ApproverGroup: r.Group, Quorum: int32(r.Quorum), RequesterMay: r.RequesterMay,
		ExpiresAt: r.ExpiresAt, Decision: decision, Request: request, Sampled: r.Sampled, CreatedAt: r.CreatedAt,
	})
	if err != nil || len(ids) == 0 {
		return false, pg.Classify(err, "add the decision %q about a call", r.CallID)
	}
	r.ID = ids[0]
	return true, w.asks(ctx, r)
}

// asks notifies people of a request that waits for them.
func (w Writes) asks(ctx context.Context, r core.CallRequest) error {
	if r.State != core.CallPending {
		return nil
	}
	return notify.AddOfCall(ctx, w.Q, w.Entered, core.Notification{
		Moment: core.MomentCallRequested, Cause: fmt.Sprintf("call:%d", r.ID), At: r.CreatedAt, SubjectID: r.ID, Subject: r.Function,
		Reason: r.Reason,
	})
}

// RestateCallRequest implements policy.CallTx.
func (w Writes) RestateCallRequest(ctx context.Context, r core.CallRequest) error {
	decision, request, err := encodedCall(r)
	if err != nil {
		return err
	}
	err = w.Q.RestateCallRequest(ctx, query.RestateCallRequestParams{
		OrganizationID: w.Entered, ID: r.ID, State: string(r.State), Policy: r.Policy, Reason: r.Reason, ApproverGroup: r.Group,
		Quorum: int32(r.Quorum), RequesterMay: r.RequesterMay, ExpiresAt: r.ExpiresAt, Decision: decision, Request: request,
		CreatedAt: r.CreatedAt,
	})
	if err != nil {
		return pg.Classify(err, "restate call request %d", r.ID)
	}
	return w.asks(ctx, r)
}

// encodedCall is what was decided and asked as it is stored. What is too large is left out.
func encodedCall(r core.CallRequest) (decision, request json.RawMessage, err error) {
	if decision, err = json.Marshal(r.Decision); err != nil {
		return nil, nil, fmt.Errorf("encode the decision %q about a call: %w", r.CallID, err)
	}
	if request = r.Request; len(request) == 0 || len(request) > core.MaxCallRequest {
		request = json.RawMessage("{}")
	}
	return decision, request, nil
}

// LockCallRequest implements policy.CallTx.
func (w Writes) LockCallRequest(ctx context.Context, id int64) (core.CallRequest, error) {
	row, err := w.Q.LockCallRequest(ctx, w.Entered, id)
	if err != nil {
		return core.CallRequest{}, missing(err, "call request", id)
	}
	return callRequest(row)
}

// LockCallRequestOf implements policy.CallTx.
func (w Writes) LockCallRequestOf(ctx context.Context, callID string) (core.CallRequest, error) {
	row, err := w.Q.LockCallRequestOfCall(ctx, w.Entered, callID)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.CallRequest{}, fault.Because(err, fault.NotFound, "there is no request of call %q", callID)
	}
	if err != nil {
		return core.CallRequest{}, pg.Classify(err, "lock the request of call %q", callID)
	}
	return callRequest(row)
}

// SaveCallRequest implements policy.CallTx.
func (w Writes) SaveCallRequest(ctx context.Context, r core.CallRequest) error {
	decision, request, err := encodedCall(r)
	if err != nil {
		return err
	}
	return pg.Classify(w.Q.SaveCallRequest(ctx, query.SaveCallRequestParams{
		OrganizationID: w.Entered, ID: r.ID, State: string(r.State), Policy: r.Policy, Reason: r.Reason, Decision: decision, Request: request,
	}), "save call request %d", r.ID)
}

// WithdrawCallRequests implements policy.CallTx.
func (w Writes) WithdrawCallRequests(ctx context.Context, workflow string) error {
	return pg.Classify(w.Q.WithdrawCallRequests(ctx, w.Entered, workflow), "withdraw the call requests of %q", workflow)
}

// CountPendingCallRequests implements policy.CallTx.
func (w Writes) CountPendingCallRequests(ctx context.Context) (int, error) {
	n, err := w.Q.CountPendingCallRequests(ctx, w.Entered)
	return int(n), pg.Classify(err, "count call requests")
}

// CountTriedCallRequests implements policy.CallTx.
func (w Writes) CountTriedCallRequests(ctx context.Context, workflow string) (int, error) {
	n, err := w.Q.CountTriedCallRequests(ctx, w.Entered, workflow)
	return int(n), pg.Classify(err, "count call requests of %q", workflow)
}

// CountSampledCallRequests implements policy.CallTx.
func (w Writes) CountSampledCallRequests(ctx context.Context, since time.Time, most int) (int, error) {
	n, err := w.Q.CountSampledCallRequests(ctx, w.Entered, since, int32(most))
	return int(n), pg.Classify(err, "count sampled call requests")
}

// AddCallAnswer implements policy.CallTx.
func (w Writes) AddCallAnswer(ctx context.Context, request int64, a core.CallAnswer) error {
	err := w.Q.InsertCallAnswer(ctx, query.InsertCallAnswerParams{
		OrganizationID: w.Entered, CallRequestID: request, Approves: a.Approves, Reason: a.Reason, PrincipalType: string(a.Author.Type),
		PrincipalID: a.Author.ID, PrincipalName: a.Author.Name, CreatedAt: a.At,
	})
	if err != nil {
		return pg.Classify(err, "add an answer to call request %d", request)
	}
	if err := notify.AnsweredCall(ctx, w.Q, w.Entered, request, a); err != nil {
		return err
	}
	return notify.AddOfCall(ctx, w.Q, w.Entered, core.Notification{
		Moment: core.MomentProceeded, Cause: fmt.Sprintf("call:%d:%s:%d", request, answered(a), a.Author.ID), At: a.At, SubjectID: request,
		Subject: answered(a), By: a.Author.Principal, Reason: a.Reason,
	})
}

func answered(a core.CallAnswer) string {
	if a.Approves {
		return string(core.VerbApprove)
	}
	return string(core.VerbReject)
}
