package store

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
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
