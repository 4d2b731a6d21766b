package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/evidence"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// ForEvidence is the store as package evidence sees it.
func (s *Store) ForEvidence() evidence.Store {
	return room[evidence.Tx]{s, func(t *tx) evidence.Tx { return t }}
}

func block(r query.JournalBlock) evidence.Block {
	return evidence.Block{
		OrganizationID: r.OrganizationID, Number: r.Number, Above: r.Above, UpTo: r.Upto, Rows: int(r.RowCount), Previous: r.Previous,
		Digest: r.Digest, SealedAt: r.SealedAt.UTC(),
	}
}

// SealHorizon implements evidence.Store.
func (s *Store) SealHorizon(ctx context.Context, organization int64) (h core.Horizon, err error) {
	err = s.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.SealHorizon(ctx, organization)
		h = core.Horizon{Position: row.Position, Oldest: row.Oldest, Next: row.Next}
		return pg.Classify(err, "look how far the journals go")
	})
	return h, err
}

// SealedRows implements evidence.Store.
func (s *Store) SealedRows(ctx context.Context, organization, above, upTo int64, most int) (all []evidence.Row, err error) {
	err = s.run(ctx, organization, func(q *query.Queries) error {
		if err := q.InUTC(ctx); err != nil {
			return pg.Classify(err, "set the time zone")
		}
		rows, err := q.SealedRows(ctx, query.SealedRowsParams{OrganizationID: organization, Above: above, Upto: upTo, AtMost: int32(most)})
		all = convertAll(rows, func(r query.SealedRowsRow) evidence.Row {
			return evidence.Row{Journal: r.Journal, ID: r.ID, Content: r.Content}
		})
		return pg.Classify(err, "read the journals behind %d", above)
	})
	return all, err
}

// LastBlock implements evidence.Store.
func (s *Store) LastBlock(ctx context.Context, organization int64) (b evidence.Block, known bool, err error) {
	err = s.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.LastJournalBlock(ctx, organization)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		b, known = block(row), err == nil
		return pg.Classify(err, "read the last block of the journals")
	})
	return b, known, err
}

// Blocks implements evidence.Store.
func (s *Store) Blocks(ctx context.Context, organization, after int64, most int) (all []evidence.Block, err error) {
	err = s.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.JournalBlocks(ctx, organization, after, int32(most))
		all = convertAll(rows, block)
		return pg.Classify(err, "read blocks of the journals behind %d", after)
	})
	return all, err
}

// CheckOf implements evidence.Store.
func (s *Store) CheckOf(ctx context.Context, organization int64) (c evidence.Check, known bool, err error) {
	err = s.run(ctx, organization, func(q *query.Queries) error {
		r, err := q.JournalCheckOf(ctx, organization)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		c, known = evidence.Check{
			OrganizationID: organization, Block: r.Block, Head: r.Head, UpTo: r.Upto, Problem: r.Problem, CheckedAt: r.CheckedAt,
		}, err == nil
		return pg.Classify(err, "read the last check of the journals")
	})
	return c, known, err
}

// JournalHealth is in how many organizations the last check of the chain found a problem, and when the one was checked that waits
// longest; the beginning of 1970 for never.
func (s *Store) JournalHealth(ctx context.Context) (problems int64, oldest time.Time, err error) {
	row, err := query.New(s.deps.Pool).JournalHealth(ctx)
	return row.Problems, row.OldestCheck, pg.Classify(err, "read how the checks of the journals went")
}

// AddBlock implements evidence.Tx.
func (t *tx) AddBlock(ctx context.Context, b evidence.Block) error {
	err := t.q.InsertJournalBlock(ctx, query.InsertJournalBlockParams{
		OrganizationID: t.organization, Number: b.Number, Above: b.Above, Upto: b.UpTo, RowCount: int32(b.Rows), Previous: b.Previous,
		Digest: b.Digest, SealedAt: b.SealedAt,
	})
	return pg.Classify(err, "seal block %d", b.Number)
}

// SaveCheck implements evidence.Tx.
func (t *tx) SaveCheck(ctx context.Context, c evidence.Check) error {
	err := t.q.SaveJournalCheck(ctx, query.SaveJournalCheckParams{
		OrganizationID: t.organization, Block: c.Block, Head: c.Head, Upto: c.UpTo, Problem: c.Problem, CheckedAt: c.CheckedAt,
	})
	return pg.Classify(err, "save the check of the journals")
}

// ForReconcile is the store as package reconcile sees it.
func (s *Store) ForReconcile() reconcile.Store {
	return room[reconcile.Tx]{s, func(t *tx) reconcile.Tx { return t }}
}

// KnownCommits implements reconcile.Store.
func (s *Store) KnownCommits(ctx context.Context, organization int64, shas []string) (map[string]bool, error) {
	known := map[string]bool{}
	err := s.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.KnownCommits(ctx, shas, organization)
		for _, sha := range rows {
			known[sha] = true
		}
		return pg.Classify(err, "look up %d commits", len(shas))
	})
	return known, err
}

// InForce implements reconcile.Store.
func (s *Store) InForce(ctx context.Context, organization int64, shas []string) (map[string][]string, error) {
	places := map[string][]string{}
	err := s.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.CommitsInForce(ctx, organization, shas)
		for _, r := range rows {
			places[r.Revision] = append(places[r.Revision], r.Application+" in "+r.Environment)
		}
		return pg.Classify(err, "read where %d commits are in force", len(shas))
	})
	return places, err
}

// HandOverAgain implements reconcile.Tx.
func (t *tx) HandOverAgain(ctx context.Context, workflow string, at time.Time) (again, pending bool, err error) {
	row, err := t.q.HandOverAgain(ctx, t.organization, workflow, at)
	return row.Again, row.Pending, pg.Classify(err, "hand over %s again", workflow)
}

// ForRetention is the store as package retention sees it.
func (s *Store) ForRetention() retention.Store {
	return room[retention.Tx]{s, func(t *tx) retention.Tx { return t }}
}

// RetentionRules implements retention.Tx.
func (t *tx) RetentionRules(ctx context.Context) (map[retention.Kind]int, error) {
	rows, err := t.q.RetentionRules(ctx, t.organization)
	days := map[retention.Kind]int{}
	for _, r := range rows {
		days[retention.Kind(r.Kind)] = int(r.KeepDays)
	}
	return days, pg.Classify(err, "read the rules of retention")
}

// SaveRetentionRule implements retention.Tx.
func (t *tx) SaveRetentionRule(ctx context.Context, kind retention.Kind, days int) error {
	return pg.Classify(t.q.SaveRetentionRule(ctx, t.organization, string(kind), int32(days)), "save how long %s are kept", kind)
}

// LegalHold implements retention.Tx.
func (t *tx) LegalHold(ctx context.Context) (string, error) {
	row, err := t.q.LegalHold(ctx, t.organization)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !row.InForce {
		return "", nil
	}
	return row.Reason, pg.Classify(err, "read the legal hold")
}

// SaveLegalHold implements retention.Tx.
func (t *tx) SaveLegalHold(ctx context.Context, reason string) error {
	return pg.Classify(t.q.SaveLegalHold(ctx, t.organization, reason != "", reason), "save the legal hold")
}

// CountSettled implements retention.Tx.
func (t *tx) CountSettled(ctx context.Context, kind retention.Kind, most int) (int, error) {
	n, err := t.q.CountSettled(ctx, string(kind), int32(most))
	return int(n), pg.Classify(err, "count settled %s", kind)
}

// DeleteSettled implements retention.Tx.
func (t *tx) DeleteSettled(ctx context.Context, kind retention.Kind, most int) (int, error) {
	n, err := t.q.DeleteSettled(ctx, string(kind), int32(most))
	return int(n), pg.Classify(err, "delete settled %s", kind)
}

// SettledRows implements retention.Tx.
func (t *tx) SettledRows(ctx context.Context, kind retention.Kind, most, bytes int) ([]retention.Row, error) {
	rows, err := t.q.SettledRows(ctx, string(kind), int32(most), int64(bytes))
	return convertAll(rows, func(r query.SettledRowsRow) retention.Row { return retention.Row{ID: r.ID, Content: r.Content} }),
		pg.Classify(err, "read settled %s", kind)
}

// DeleteSettledRows implements retention.Tx.
func (t *tx) DeleteSettledRows(ctx context.Context, kind retention.Kind, ids []int64, o retention.Object) (int, error) {
	n, err := t.q.DeleteSettledRows(ctx, query.DeleteSettledRowsParams{Kind: string(kind), Ids: ids, Name: o.Name, Digest: o.Digest})
	return int(n), pg.Classify(err, "delete archived %s", kind)
}

// Installation implements retention.Tx.
func (t *tx) Installation(ctx context.Context) (string, error) {
	id, err := t.q.InstallationID(ctx)
	return id, pg.Classify(err, "read the installation's id")
}

// ArchivedObjects implements retention.Store.
func (s *Store) ArchivedObjects(
	ctx context.Context, organization int64, kind retention.Kind, after string, most int,
) (all []retention.Object, err error) {
	err = s.run(ctx, organization, func(q *query.Queries) error {
		rows, err := q.ArchivedObjects(ctx, query.ArchivedObjectsParams{
			OrganizationID: organization, Kind: string(kind), After: after, AtMost: int32(most),
		})
		all = convertAll(rows, func(r query.ArchivedObjectsRow) retention.Object {
			return retention.Object{Name: r.Name, Digest: r.Digest, Rows: int(r.RowCount), Kept: r.Kept, DeletedAt: r.CreatedAt.UTC()}
		})
		return pg.Classify(err, "read the objects of the archive behind %q", after)
	})
	return all, err
}

// InstallationID implements retention.Store.
func (s *Store) InstallationID(ctx context.Context) (id string, err error) {
	id, err = query.New(s.deps.Pool).InstallationID(ctx)
	return id, pg.Classify(err, "read the installation's id")
}
