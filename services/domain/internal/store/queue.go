package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/notify"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// RolloutPolicies implements view.Reads.
func (r reader) RolloutPolicies(ctx context.Context, organization int64, applications []int64) (map[int64]core.RolloutPolicy, error) {
	return byKey(ctx, r, organization, applications, "rollout policies", (*query.Queries).RollbackPolicies,
		func(row query.ApplicationPolicy) (int64, core.RolloutPolicy) {
			return row.ApplicationID, core.RolloutPolicy{
				ApplicationID: row.ApplicationID, OnFailure: core.FailurePolicy(row.OnFailure), OnNewer: core.NewerPolicy(row.OnNewer),
			}
		})
}

// SaveRolloutPolicy implements rollout.Tx.
func (t *tx) SaveRolloutPolicy(ctx context.Context, p core.RolloutPolicy) error {
	err := t.q.SaveRolloutPolicy(ctx, query.SaveRolloutPolicyParams{
		OrganizationID: t.organization, ApplicationID: p.ApplicationID, OnFailure: string(p.OnFailure), OnNewer: string(p.OnNewer),
	})
	return pg.Classify(err, "save rollout policy of application %d", p.ApplicationID)
}

// QueuedRollouts implements view.Reads.
func (r reader) QueuedRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.QueuedRollout, error) {
	return byKey(ctx, r, organization, applications, "queued rollouts", (*query.Queries).QueuedRollouts,
		keyed(queuedRollout, func(q core.QueuedRollout) int64 { return q.ApplicationID }))
}

func queuedRollout(row query.QueuedRollout) core.QueuedRollout {
	return core.QueuedRollout{
		ID: row.ID, ApplicationID: row.ApplicationID, VersionSetID: row.VersionSetID, Reason: row.Reason, RequestedAt: row.RequestedAt,
		Requester:    core.Principal{Type: core.PrincipalType(row.PrincipalType), ID: orZero(row.PrincipalID)},
		Environments: row.Environments, TriggerID: orZero(row.TriggerID), Cause: row.Cause, Strategy: planner.Choice(row.Strategy),
		Inputs: row.Inputs, ComparisonID: orZero(row.ComparisonID), ComparesUntil: row.ComparesUntil,
		State: core.QueuedState(row.State), MadeRolloutID: orZero(row.MadeRolloutID), Outcome: row.Outcome, EndedAt: row.EndedAt,
		CancelledBy: core.Principal{Type: core.PrincipalType(row.CancelledByType), ID: orZero(row.CancelledByID)},
	}
}

// QueuedRolloutsByID implements view.Reads.
func (r reader) QueuedRolloutsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.QueuedRollout, error) {
	return byKey(ctx, r, organization, ids, "queued rollouts by number", (*query.Queries).QueuedRolloutsByID,
		keyed(queuedRollout, func(q core.QueuedRollout) int64 { return q.ID }))
}

// LastQueuedRollouts implements view.Reads.
func (r reader) LastQueuedRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.QueuedRollout, error) {
	return byKey(ctx, r, organization, applications, "rollouts that have left the queue", (*query.Queries).LastQueuedRollouts,
		keyed(queuedRollout, func(q core.QueuedRollout) int64 { return q.ApplicationID }))
}

// WaitingRollouts implements view.Reads.
func (r reader) WaitingRollouts(ctx context.Context, organization, application int64, most int) (all []core.QueuedRollout, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.WaitingRollouts(ctx, organization, application, int32(most))
		all = convertAll(rows, queuedRollout)
		return pg.Classify(err, "read what waits in queues")
	})
	return all, err
}

// LockQueuedRollout implements rollout.Tx.
func (t *tx) LockQueuedRollout(ctx context.Context, id int64) (core.QueuedRollout, error) {
	row, err := t.q.LockQueuedRollout(ctx, t.organization, id)
	return queuedRollout(row), missing(err, "queued rollout", id)
}

// QueueRollout implements rollout.Tx.
func (t *tx) QueueRollout(ctx context.Context, q core.QueuedRollout) (core.QueuedRollout, error) {
	before, err := t.q.LockWaitingRollout(ctx, t.organization, q.ApplicationID)
	if err != nil {
		return q, pg.Classify(err, "find what waits for application %d", q.ApplicationID)
	}
	displaced := int64(0)
	for _, row := range before {
		displaced = row.VersionSetID
		of := queuedRollout(row)
		of.State, of.Outcome, of.EndedAt = core.QueuedDropped, core.ReplacedInQueue, &q.RequestedAt
		if err := t.SettleQueuedRollout(ctx, of); err != nil {
			return q, err
		}
	}
	q.ID, err = t.q.SaveQueuedRollout(ctx, query.SaveQueuedRolloutParams{
		OrganizationID: t.organization, ApplicationID: q.ApplicationID, VersionSetID: q.VersionSetID,
		PrincipalType: string(q.Requester.Type), PrincipalID: orNull(q.Requester.ID), Reason: q.Reason, RequestedAt: q.RequestedAt,
		Environments: append([]string{}, q.Environments...), TriggerID: orNull(q.TriggerID), Cause: q.Cause,
		Strategy: string(q.Strategy), Inputs: orObject(q.Inputs),
		ComparisonID: orNull(q.ComparisonID), ComparesUntil: q.ComparesUntil,
	})
	if err != nil {
		return q, pg.Classify(err, "queue a rollout of application %d", q.ApplicationID)
	}
	q.State = core.QueuedPending
	return q, notify.Queued(ctx, t.q, t.organization, q, displaced)
}

// FreeQueuedRollout implements rollout.Tx.
func (t *tx) FreeQueuedRollout(ctx context.Context, at time.Time) (core.QueuedRollout, bool, error) {
	row, err := t.q.FreeQueuedRollout(ctx, t.organization, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.QueuedRollout{}, false, nil
	}
	return queuedRollout(row), err == nil, pg.Classify(err, "find queued rollout")
}

// CompareQueuedRollout implements rollout.Tx.
func (t *tx) CompareQueuedRollout(ctx context.Context, q core.QueuedRollout) error {
	err := t.q.CompareQueuedRollout(ctx, query.CompareQueuedRolloutParams{
		OrganizationID: t.organization, ID: q.ID, ComparisonID: orNull(q.ComparisonID), ComparesUntil: q.ComparesUntil,
	})
	return pg.Classify(err, "have queued rollout %d wait for a comparison", q.ID)
}

// SettleQueuedRollout implements rollout.Tx and setup.Tx.
func (t *tx) SettleQueuedRollout(ctx context.Context, q core.QueuedRollout) error {
	n, err := t.q.SettleQueuedRollout(ctx, query.SettleQueuedRolloutParams{
		OrganizationID: t.organization, ID: q.ID, Outcome: q.Outcome, MadeRolloutID: orNull(q.MadeRolloutID), EndedAt: q.EndedAt,
		CancelledByType: string(q.CancelledBy.Type), CancelledByID: orNull(q.CancelledBy.ID),
	})
	if err != nil || n == 0 { // it has left the queue meanwhile
		return pg.Classify(err, "settle queued rollout %d", q.ID)
	}
	if err := t.SettleQueued(ctx, q); err != nil || q.Outcome == "" {
		return err
	}
	if err := notify.Dropped(ctx, t.q, t.organization, q); err != nil {
		return err
	}
	_, err = t.q.ForgetDroppedRollouts(ctx, q.ApplicationID)
	return pg.Classify(err, "forget what has left the queue of application %d", q.ApplicationID)
}

// OrganizationsWithFreeQueue implements rollout.Store.
func (s *Store) OrganizationsWithFreeQueue(ctx context.Context) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithFreeQueue(ctx)
	return ids, pg.Classify(err, "find organizations with queued rollouts")
}

// ScheduleClosing implements rollout.Tx.
func (t *tx) ScheduleClosing(ctx context.Context, rollout int64, reason string, due time.Time) error {
	err := t.q.InsertClosing(ctx, query.InsertClosingParams{OrganizationID: t.organization, RolloutID: rollout, Reason: reason, DueAt: due})
	return pg.Classify(err, "schedule closing of rollout %d", rollout)
}

// DueClosing implements rollout.Tx.
func (t *tx) DueClosing(ctx context.Context, at time.Time) (core.Closing, bool, error) {
	row, err := t.q.DueClosing(ctx, t.organization, at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Closing{}, false, nil
	}
	return core.Closing{ID: row.ID, RolloutID: row.RolloutID, Reason: row.Reason}, err == nil, pg.Classify(err, "find due closing")
}

// SettleClosing implements rollout.Tx.
func (t *tx) SettleClosing(ctx context.Context, rollout int64) error {
	return pg.Classify(t.q.SettleClosing(ctx, t.organization, rollout), "settle closing of rollout %d", rollout)
}

// OrganizationsWithDueClosings implements rollout.Store.
func (s *Store) OrganizationsWithDueClosings(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueClosings(ctx, at)
	return ids, pg.Classify(err, "find organizations with rollouts to close")
}
