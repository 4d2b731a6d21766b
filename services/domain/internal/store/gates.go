package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// gate is an open gate with the approvals so far, which the query hands over as one JSON list.
func gate(row query.OpenGatesRow) (core.Gate, error) {
	var approvals []struct {
		Type   string    `json:"type"`
		ID     *int64    `json:"id"`
		Reason *string   `json:"reason"`
		At     time.Time `json:"at"`
		// Counts is what the approval counts for, where the rule has several requirements.
		Counts []core.Condition `json:"counts"`
	}
	if err := json.Unmarshal(row.Approvals, &approvals); err != nil {
		return core.Gate{}, fmt.Errorf("read approvals of gate %s of rollout %d: %w", orZero(row.GateID), row.RolloutID, err)
	}
	g := core.Gate{
		RolloutID: row.RolloutID, GateID: orZero(row.GateID), Reason: orZero(row.Reason), RequestedAt: row.CreatedAt, RequestID: row.RequestID,
		GateRule:            gateRule(row.Quorum, row.ApproverGroup, row.RequesterMayApprove, row.ExpiresAfterSeconds, row.OnExpiry),
		BeforeEnvironmentID: row.BeforeEnvironmentID,
		Requester:           core.Principal{Type: core.PrincipalType(row.RequesterType), ID: orZero(row.RequesterID)},
		Proposal: core.GateProposal{
			EnvironmentID: row.ProposalEnvironmentID, Number: row.ProposalNumber, Status: core.ProposedStatus(row.ProposalState),
			Answered: row.ProposalAnswered, Answer: row.ProposalAnswer,
		},
	}
	if err := require(&g.GateRule, row.Also); err != nil {
		return core.Gate{}, fmt.Errorf("read requirements of gate %s of rollout %d: %w", g.GateID, row.RolloutID, err)
	}
	for _, a := range approvals {
		one := core.GateApproval{
			Principal: core.Principal{Type: core.PrincipalType(a.Type), ID: orZero(a.ID)}, Reason: orZero(a.Reason), At: a.At,
		}
		for _, c := range a.Counts {
			for _, by := range c.By {
				one.Groups = append(one.Groups, by.Groups...)
			}
		}
		g.Approvals = append(g.Approvals, one)
	}
	return g, nil
}

// severalGroups is in place of the group of a rule with several requirements, all of which are in another column. A replica of a release
// that does not know that column reads a group that nobody can be in, so it lets nobody approve: the first requirement alone would open the
// passage too early. No group has such a name.
const severalGroups = "(several)"

// require completes a rule with its several requirements, if it has them. Rows of an earlier release have the first one in its own columns.
func require(r *core.GateRule, text json.RawMessage) error {
	if len(text) == 0 {
		return nil
	}
	var all []core.Requirement
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("read a list of requirements: %w", err)
	}
	if r.Group == severalGroups && len(all) > 0 {
		r.Group, r.Quorum, all = all[0].Group, all[0].Quorum, all[1:]
	}
	r.Also = all
	return nil
}

func gateRule(quorum int32, group string, requester bool, expiresAfter int32, onExpiry string) core.GateRule {
	return core.GateRule{
		Quorum: int(quorum), Group: group, RequesterMayApprove: requester,
		ExpiresAfter: time.Duration(expiresAfter) * time.Second, OnExpiry: core.GateOutcome(onExpiry),
	}
}

// AddGateRule implements rollout.Tx.
func (t *tx) AddGateRule(ctx context.Context, rollout int64, gate string, r core.PinnedGate) error {
	var also json.RawMessage
	if len(r.Also) > 0 {
		var err error
		if also, err = json.Marshal(r.Requirements()); err != nil {
			return fmt.Errorf("write requirements of gate %s of rollout %d: %w", gate, rollout, err)
		}
		r.Group = severalGroups
	}
	err := t.q.InsertRolloutGate(ctx, query.InsertRolloutGateParams{
		OrganizationID: t.organization, RolloutID: rollout, GateID: gate, Quorum: int32(r.Quorum), ApproverGroup: r.Group,
		RequesterMayApprove: r.RequesterMayApprove, ExpiresAfterSeconds: int32(r.ExpiresAfter / time.Second), OnExpiry: string(r.OnExpiry),
		Reason: r.Reason, Own: r.Own, BeforeEnvironmentID: orNull(r.BeforeEnvironmentID),
		Also: also,
	})
	return pg.Classify(err, "pin gate %s of rollout %d", gate, rollout)
}

// GateRules implements rollout.Tx.
func (t *tx) GateRules(ctx context.Context, rollout int64) (map[string]core.PinnedGate, error) {
	rows, err := t.q.RolloutGates(ctx, t.organization, rollout)
	rules := make(map[string]core.PinnedGate, len(rows))
	for _, r := range rows {
		rule, err := pinnedGate(r)
		if err != nil {
			return nil, err
		}
		rules[r.GateID] = rule
	}
	return rules, pg.Classify(err, "read gates of rollout %d", rollout)
}

func pinnedGate(r query.RolloutGate) (core.PinnedGate, error) {
	rule := core.PinnedGate{
		GateRule: gateRule(r.Quorum, r.ApproverGroup, r.RequesterMayApprove, r.ExpiresAfterSeconds, r.OnExpiry),
		Reason:   r.Reason, Own: r.Own, BeforeEnvironmentID: orZero(r.BeforeEnvironmentID),
	}
	if err := require(&rule.GateRule, r.Also); err != nil {
		return rule, fmt.Errorf("read requirements of gate %s of rollout %d: %w", r.GateID, r.RolloutID, err)
	}
	return rule, nil
}

// PinnedGates implements view.Reads.
func (r reader) PinnedGates(ctx context.Context, organization int64, rollouts []int64) (map[int64]map[string]core.PinnedGate, error) {
	rows, err := under(ctx, r, organization, rollouts, "gates of rollouts", (*query.Queries).GatesPinned,
		func(row query.RolloutGate) (int64, query.RolloutGate) { return row.RolloutID, row })
	all := make(map[int64]map[string]core.PinnedGate, len(rows))
	for rollout, of := range rows {
		all[rollout] = make(map[string]core.PinnedGate, len(of))
		for _, row := range of {
			if all[rollout][row.GateID], err = pinnedGate(row); err != nil {
				return nil, err
			}
		}
	}
	return all, err
}

// ScheduleGateExpiry implements rollout.Tx.
func (t *tx) ScheduleGateExpiry(ctx context.Context, e core.GateExpiry, due time.Time) error {
	err := t.q.InsertGateExpiry(ctx, query.InsertGateExpiryParams{
		OrganizationID: t.organization, RolloutID: e.RolloutID, GateID: e.GateID, AskedAt: e.AskedAt, DueAt: due,
	})
	return pg.Classify(err, "schedule expiry of gate %s of rollout %d", e.GateID, e.RolloutID)
}

// DueGateExpiry implements rollout.Tx.
func (t *tx) DueGateExpiry(ctx context.Context, at time.Time) (core.GateExpiry, bool, error) {
	row, err := t.q.DueGateExpiry(ctx, t.organization, at)
	if errors.Is(err, pgx.ErrNoRows) {
		return core.GateExpiry{}, false, nil
	}
	return core.GateExpiry{ID: row.ID, RolloutID: row.RolloutID, GateID: row.GateID, AskedAt: row.AskedAt}, err == nil,
		pg.Classify(err, "find due gate")
}

// SettleGateExpiry implements rollout.Tx.
func (t *tx) SettleGateExpiry(ctx context.Context, id int64) error {
	return pg.Classify(t.q.SettleGateExpiry(ctx, t.organization, id), "settle gate expiry %d", id)
}

// OrganizationsWithDueGateExpiries implements rollout.Store.
func (s *Store) OrganizationsWithDueGateExpiries(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueGateExpiries(ctx, at)
	return ids, pg.Classify(err, "find organizations with due gates")
}

// EnvironmentApprovals implements view.Reads.
func (r reader) EnvironmentApprovals(
	ctx context.Context, organization int64, environments []int64,
) (map[int64]core.EnvironmentApproval, error) {
	return byKey(ctx, r, organization, environments, "approvals of environments", (*query.Queries).EnvironmentApprovals,
		func(row query.EnvironmentApproval) (int64, core.EnvironmentApproval) {
			return row.EnvironmentID, core.EnvironmentApproval{
				EnvironmentID: row.EnvironmentID, Reason: row.Reason,
				GateRule: gateRule(row.Quorum, row.ApproverGroup, row.RequesterMayApprove, row.ExpiresAfterSeconds, row.OnExpiry),
			}
		})
}

// SaveEnvironmentApproval implements setup.Tx.
func (t *tx) SaveEnvironmentApproval(ctx context.Context, a core.EnvironmentApproval) error {
	err := t.q.SaveEnvironmentApproval(ctx, query.SaveEnvironmentApprovalParams{
		OrganizationID: t.organization, EnvironmentID: a.EnvironmentID, Reason: a.Reason, Quorum: int32(a.Quorum), ApproverGroup: a.Group,
		RequesterMayApprove: a.RequesterMayApprove, ExpiresAfterSeconds: int32(a.ExpiresAfter / time.Second), OnExpiry: string(a.OnExpiry),
	})
	return pg.Classify(err, "save approval of environment %d", a.EnvironmentID)
}

// DropEnvironmentApproval implements setup.Tx.
func (t *tx) DropEnvironmentApproval(ctx context.Context, environment int64) error {
	return pg.Classify(t.q.DropEnvironmentApproval(ctx, t.organization, environment), "drop approval of environment %d", environment)
}

// AddDeadline implements rollout.Tx.
func (t *tx) AddDeadline(ctx context.Context, d core.Deadline) error {
	err := t.q.InsertDeadline(ctx, query.InsertDeadlineParams{
		OrganizationID: t.organization, RolloutID: d.RolloutID, Kind: string(d.Kind), EnvironmentID: orNull(d.EnvironmentID),
		GateID: d.Environment, Seconds: int32(d.After / time.Second), Action: string(d.Action), CountsWaiting: d.CountsWaiting,
		AtWork:        d.AtWork,
		PrincipalType: string(d.By.Type), PrincipalID: orNull(d.By.ID), Reason: d.Reason, StartedAt: d.StartedAt, DueAt: d.Due,
	})
	return pg.Classify(err, "add deadline of rollout %d", d.RolloutID)
}

// Deadlines implements rollout.Tx and view.Reads.
func (r reader) Deadlines(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Deadline, error) {
	return under(ctx, r, organization, rollouts, "deadlines", (*query.Queries).Deadlines,
		func(row query.RolloutDeadline) (int64, core.Deadline) {
			return row.RolloutID, core.Deadline{
				ID: row.ID, RolloutID: row.RolloutID, Kind: core.DeadlineKind(row.Kind), EnvironmentID: orZero(row.EnvironmentID),
				Environment: row.GateID, By: core.Principal{Type: core.PrincipalType(row.PrincipalType), ID: orZero(row.PrincipalID)},
				DeadlineRule: core.DeadlineRule{
					After: time.Duration(row.Seconds) * time.Second, Action: core.DeadlineAction(row.Action), CountsWaiting: row.CountsWaiting,
					AtWork: row.AtWork,
				},
				Away:   time.Duration(row.AwaySeconds) * time.Second,
				Reason: row.Reason, StartedAt: row.StartedAt, Due: row.DueAt, Outcome: row.Outcome,
			}
		})
}

// RolloutWithDueDeadline implements rollout.Tx.
func (t *tx) RolloutWithDueDeadline(ctx context.Context, at time.Time) (int64, bool, error) {
	id, err := t.q.RolloutWithDueDeadline(ctx, t.organization, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return id, err == nil, pg.Classify(err, "find due deadline")
}

// SaveDeadline implements rollout.Tx.
func (t *tx) SaveDeadline(ctx context.Context, d core.Deadline) error {
	err := t.q.SaveDeadline(ctx, query.SaveDeadlineParams{OrganizationID: t.organization, ID: d.ID, DueAt: d.Due, Outcome: d.Outcome})
	return pg.Classify(err, "save deadline %d", d.ID)
}

// NoticeAbsence implements rollout.Store.
func (s *Store) NoticeAbsence(ctx context.Context, at time.Time) (int64, error) {
	several, err := query.New(s.deps.Pool).NoticeAbsence(ctx, at)
	return several, pg.Classify(err, "notice an absence")
}

// OrganizationsWithDueDeadlines implements rollout.Store.
func (s *Store) OrganizationsWithDueDeadlines(ctx context.Context, at time.Time) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithDueDeadlines(ctx, at)
	return ids, pg.Classify(err, "find organizations with due deadlines")
}
