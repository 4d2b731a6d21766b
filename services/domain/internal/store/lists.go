package store

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/sqlc"
)

// Applications implements core.Reads.
func (r reader) Applications(ctx context.Context, organization int64, f core.ApplicationFilter, p core.Page) (s core.Slice[core.Application], err error) {
	if f.Order == core.OrderName {
		return r.byName(ctx, organization, p, func(q *sqlc.Queries, after string, most int32) ([]sqlc.Application, error) {
			return q.ListApplicationsByName(ctx, sqlc.ListApplicationsByNameParams{OrganizationID: organization, AfterName: after, Contains: f.Contains, AtMost: most})
		})
	}
	w, err := open(p, 0)
	if err != nil {
		return s, err
	}
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		rows, err := q.ListApplications(ctx, sqlc.ListApplicationsParams{OrganizationID: organization, After: w.after, Contains: f.Contains, AtMost: w.limit()})
		s = slice(w, convertAll(rows, application), func(a core.Application) int64 { return a.ID })
		return pg.Classify(err, "list applications")
	})
	return s, err
}

// nameCursor begins the cursors of lists that go by name, so that one of another list is told apart.
const nameCursor = "name:"

// byName is a page of applications in the order of their names, of rows above a name and at most so many.
func (r reader) byName(
	ctx context.Context, organization int64, p core.Page, query func(q *sqlc.Queries, after string, most int32) ([]sqlc.Application, error),
) (s core.Slice[core.Application], err error) {
	after := ""
	if p.After != "" {
		text, err := base64.RawURLEncoding.DecodeString(p.After)
		name, ok := strings.CutPrefix(string(text), nameCursor)
		if err != nil || !ok {
			return s, fault.InvalidFields(fault.Field{Name: "/after", Problem: "found a cursor that is none of ours; expected an endCursor of this list in this order"})
		}
		after, p.After = name, ""
	}
	w, err := open(p, 0)
	if err != nil {
		return s, err
	}
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		rows, err := query(q, after, w.limit())
		s = slice(w, convertAll(rows, application), func(a core.Application) int64 { return a.ID })
		if n := len(s.Nodes); n > 0 {
			s.EndCursor = base64.RawURLEncoding.EncodeToString([]byte(nameCursor + s.Nodes[n-1].Name))
		}
		return pg.Classify(err, "list applications by name")
	})
	return s, err
}

// Environments implements core.Reads.
func (r reader) Environments(ctx context.Context, organization int64, f core.EnvironmentFilter, p core.Page) (s core.Slice[core.Environment], err error) {
	w, err := open(p, 0)
	if err != nil {
		return s, err
	}
	tiers := make([]string, len(f.Tiers))
	for i, t := range f.Tiers {
		tiers[i] = string(t)
	}
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		rows, err := q.ListEnvironments(ctx, sqlc.ListEnvironmentsParams{OrganizationID: organization, After: w.after, Contains: f.Contains, Tiers: tiers, AtMost: w.limit()})
		s = slice(w, convertAll(rows, environment), func(e core.Environment) int64 { return e.ID })
		return pg.Classify(err, "list environments")
	})
	return s, err
}

// RolloutsAsking implements core.Reads.
func (r reader) RolloutsAsking(ctx context.Context, organization, after int64, most int) (ids []int64, err error) {
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		ids, err = q.RolloutsAsking(ctx, organization, after, int32(most))
		return pg.Classify(err, "find rollouts that ask")
	})
	return ids, err
}

// JournalSince implements core.Reads.
func (r reader) JournalSince(ctx context.Context, organization, after, upTo int64, most int) (all []core.JournalEntry, err error) {
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		rows, err := q.JournalSince(ctx, sqlc.JournalSinceParams{OrganizationID: organization, After: after, UpTo: upTo, AtMost: int32(most)})
		all = convertAll(rows, func(row sqlc.JournalSinceRow) core.JournalEntry {
			return core.JournalEntry{RolloutID: row.RolloutID, Transition: core.Transition{
				ID: row.ID, Subject: core.Subject{Kind: core.SubjectKind(row.Kind), ID: row.SubjectID}, From: row.FromState, To: row.ToState, Verb: core.Verb(row.Event),
				GateID: orZero(row.GateID), PrincipalType: core.PrincipalType(row.PrincipalType), PrincipalID: orZero(row.PrincipalID),
				Reason: orZero(row.Reason), TriggeredBy: orZero(row.TriggeredBy), CreatedAt: row.CreatedAt,
			}}
		})
		return pg.Classify(err, "read the journal after %d", after)
	})
	return all, err
}

// JournalHorizon implements core.Reads.
func (r reader) JournalHorizon(ctx context.Context, organization int64) (h core.Horizon, err error) {
	err = r.run(ctx, organization, func(q *sqlc.Queries) error {
		row, err := q.JournalHorizon(ctx, organization)
		h = core.Horizon{Position: row.Position, Oldest: row.Oldest, Next: row.Next}
		return pg.Classify(err, "look how far the journal goes")
	})
	return h, err
}
