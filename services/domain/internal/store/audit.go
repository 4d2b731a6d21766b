package store

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// Audit implements evidence.Store.
func (r reader) Audit(ctx context.Context, organization int64, f evidence.Filter, p core.Page) (core.Slice[evidence.Entry], error) {
	since, until := between(f)
	return list(ctx, r, organization, p, core.OrderCreatedDesc, "audit", func(q *query.Queries, w core.Window) ([]query.ListAuditRow, error) {
		return q.ListAudit(ctx, query.ListAuditParams{
			OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, PrincipalID: f.PrincipalID, Action: f.Action,
			ApplicationID: f.ApplicationID, EnvironmentID: f.EnvironmentID, Since: since, Until: until, Falling: w.Falling, AtMost: limit(w),
		})
	}, auditEntry, numbered(func(e evidence.Entry) int64 { return e.ID }))
}

// CountAudit implements evidence.Store.
func (r reader) CountAudit(ctx context.Context, organization int64, f evidence.Filter) (int, error) {
	since, until := between(f)
	return count(ctx, r, organization, "entries of the audit", func(q *query.Queries) (int64, error) {
		return q.CountAudit(ctx, query.CountAuditParams{
			OrganizationID: organization, PrincipalID: f.PrincipalID, Action: f.Action, ApplicationID: f.ApplicationID,
			EnvironmentID: f.EnvironmentID, Since: since, Until: until,
		})
	})
}

// between is the time that a filter means, with bounds where it has none.
func between(f evidence.Filter) (since, until time.Time) {
	since, until = time.Unix(0, 0), core.Never()
	if f.Since != nil {
		since = *f.Since
	}
	if f.Until != nil {
		until = *f.Until
	}
	return since, until
}

func auditEntry(r query.ListAuditRow) evidence.Entry {
	return evidence.Entry{Journal: r.Journal, Change: core.Change{
		ID: r.ID, Principal: core.Principal{Type: core.PrincipalType(r.PrincipalType), ID: r.PrincipalID}, PrincipalName: r.PrincipalName,
		Action:        core.Action(r.Action),
		Subject:       core.AccessSubject{Kind: core.AccessKind(r.SubjectKind), ID: r.SubjectNumber, Name: r.SubjectName},
		ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, Reason: r.Reason, Detail: r.Detail,
		Before: unlessNull(r.Before), After: unlessNull(r.After), TraceID: r.TraceID, CreatedAt: r.CreatedAt,
	}}
}

// unlessNull is nil for JSON's null, which the query has where the column has no value.
func unlessNull(v json.RawMessage) json.RawMessage {
	if bytes.Equal(v, []byte("null")) {
		return nil
	}
	return v
}

func proposedChange(r query.ProposedChange) core.ProposedChange {
	p := core.ProposedChange{
		ID: r.ID, Change: core.Change{
			ID: r.ID, Principal: core.Principal{Type: core.PrincipalUser, ID: r.ProposerID}, PrincipalName: r.ProposerName,
			Action:        core.Action(r.Action),
			Subject:       core.AccessSubject{Kind: core.AccessKind(r.SubjectKind), ID: r.SubjectNumber, Name: r.SubjectName},
			ApplicationID: orZero(r.ApplicationID), EnvironmentID: orZero(r.EnvironmentID), Reason: r.Reason, Detail: r.Detail,
			Before: r.Before, After: r.After, CreatedAt: r.CreatedAt,
		},
		Environments: r.Environments, Input: r.Input, State: core.ProposalState(r.State), ExpiresAt: r.ExpiresAt, DecidedAt: r.DecidedAt,
		DeciderName: r.DeciderName, Decision: r.Decision,
	}
	if r.DeciderID != nil {
		p.Decider = core.Principal{Type: core.PrincipalUser, ID: *r.DeciderID}
	}
	return p
}

// ControlledEnvironments implements core.ControlTx.
func (t *tx) ControlledEnvironments(ctx context.Context) (map[int64]core.Environment, error) {
	rows, err := t.q.ControlledEnvironments(ctx, t.organization)
	all := make(map[int64]core.Environment, len(rows))
	for _, r := range rows {
		all[r.ID] = environment(r)
	}
	return all, pg.Classify(err, "read environments under change control")
}

// ChangeControlled implements view.Reads.
func (r reader) ChangeControlled(ctx context.Context, organization int64, environments []int64) (map[int64]bool, error) {
	controlled := map[int64]bool{}
	err := r.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ControlledEnvironments(ctx, organization)
		for _, one := range rows {
			controlled[one.ID] = true
		}
		return pg.Classify(err, "read change control of %d environments", len(environments))
	})
	return controlled, err
}

// SetChangeControl implements setup.Tx.
func (t *tx) SetChangeControl(ctx context.Context, environment int64, on bool) error {
	return pg.Classify(t.q.SetChangeControl(ctx, t.organization, environment, on), "set change control of environment %d", environment)
}

// EnvironmentsConcerned implements core.ControlTx.
func (t *tx) EnvironmentsConcerned(ctx context.Context, application, sharing int64, group string) ([]int64, error) {
	ids, err := t.q.EnvironmentsConcerned(ctx, query.EnvironmentsConcernedParams{
		OrganizationID: t.organization, ApplicationID: application, Sharing: sharing, ApproverGroup: group,
	})
	return ids, pg.Classify(err, "find environments that a change concerns")
}

// AddProposedChange implements core.ControlTx.
func (t *tx) AddProposedChange(ctx context.Context, p core.ProposedChange) (core.ProposedChange, error) {
	if err := t.q.ExpireProposedChanges(ctx, t.organization); err != nil {
		return p, pg.Classify(err, "end old proposals")
	}
	same, err := t.q.SameProposedChange(ctx, query.SameProposedChangeParams{
		OrganizationID: t.organization, ProposerID: p.Principal.ID, Action: string(p.Action), Input: p.Input,
	})
	if err != nil || len(same) > 0 {
		if err != nil {
			return p, pg.Classify(err, "look for the same proposal")
		}
		return proposedChange(same[0]), nil
	}
	open, err := t.q.CountOpenProposedChanges(ctx, t.organization)
	if err != nil {
		return p, pg.Classify(err, "count proposals")
	}
	if open >= core.MaxProposals {
		return p, fault.New(fault.Refused, "%d changes are proposed already, as many as possible; confirm, reject or withdraw some", open)
	}
	row, err := t.q.InsertProposedChange(ctx, query.InsertProposedChangeParams{
		OrganizationID: t.organization, ProposerID: p.Principal.ID, ProposerName: p.PrincipalName, Action: string(p.Action),
		SubjectKind: string(p.Subject.Kind), SubjectNumber: p.Subject.ID, SubjectName: p.Subject.Name, ApplicationID: orNull(p.ApplicationID),
		EnvironmentID: orNull(p.EnvironmentID), Environments: p.Environments, Reason: p.Reason, Detail: p.Detail, Input: p.Input,
		Before: p.Before, After: p.After, LifeSeconds: int64(core.ProposalLife / time.Second),
	})
	return proposedChange(row), pg.Classify(err, "propose %s", p.Action)
}

// SettleProposedChange implements core.ControlTx.
func (t *tx) SettleProposedChange(ctx context.Context, id int64, to core.ProposalState, by core.Actor, reason string) error {
	n, err := t.q.SettleProposedChange(ctx, query.SettleProposedChangeParams{
		State: string(to), DeciderID: by.ID, DeciderName: by.DisplayName(), Decision: reason, OrganizationID: t.organization, ID: id,
	})
	if err == nil && n == 0 {
		return fault.New(fault.Refused, "proposedchange_%d is decided already, or its time is over", id)
	}
	return pg.Classify(err, "decide proposed change %d", id)
}

// ProposedChangesByID implements control.Reads.
func (r reader) ProposedChangesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ProposedChange, error) {
	return byKey(ctx, r, organization, ids, "proposed changes", (*query.Queries).ProposedChangesByID,
		keyed(proposedChange, func(p core.ProposedChange) int64 { return p.ID }))
}

// ProposedChanges implements control.Store.
func (r reader) ProposedChanges(
	ctx context.Context, organization int64, f control.Filter, p core.Page,
) (core.Slice[core.ProposedChange], error) {
	return list(ctx, r, organization, p, core.OrderCreatedDesc, "proposed changes",
		func(q *query.Queries, w core.Window) ([]query.ProposedChange, error) {
			return q.ListProposedChanges(ctx, query.ListProposedChangesParams{
				OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, Open: f.Open, At: f.At,
				Falling: w.Falling, AtMost: limit(w),
			})
		}, proposedChange, numbered(func(p core.ProposedChange) int64 { return p.ID }))
}

// CountProposedChanges implements control.Store.
func (r reader) CountProposedChanges(ctx context.Context, organization int64, f control.Filter) (int, error) {
	return count(ctx, r, organization, "proposed changes", func(q *query.Queries) (int64, error) {
		return q.CountProposedChanges(ctx, organization, f.Open, f.At)
	})
}
