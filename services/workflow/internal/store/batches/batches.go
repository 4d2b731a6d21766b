// Package batches is the store of batches, beside that of runs.
package batches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/batch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Store keeps batches in the tables of the service.
type Store struct {
	pool    *pgxpool.Pool
	queries *query.Queries
}

var _ batch.Store = (*Store)(nil)

// New makes a Store over a pool whose schema has been migrated.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: pool, queries: query.New(pool)} }

// filter is the column of that name.
type filter struct {
	Query     control.ListQuery `json:"query"`
	Workflows []string          `json:"workflows,omitempty"`
	// To is the entry of a reset, Total how many there were at the start.
	To      int64 `json:"to,omitempty"`
	Total   int64 `json:"total,omitempty"`
	AtLeast bool  `json:"at_least,omitempty"`
}

// kept is for how long a batch is kept that has ended.
const kept = 30 * 24 * time.Hour

// keptMost is how many batches of an organization are kept at most, beside those that are running.
const keptMost = 1000

// SaveBatch stores a batch, and forgets old ones of the organization.
func (s *Store) SaveBatch(ctx context.Context, b batch.Batch, most int) (id int64, err error) {
	encoded, err := json.Marshal(filter{b.Filter, b.Workflows, b.To, b.Total, b.AtLeast})
	if err != nil {
		return 0, fmt.Errorf("encode the conditions of a batch: %w", err)
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.queries.WithTx(tx)
		if err := q.LockScheduleName(ctx, b.Organization); err != nil { // few are started: those of an organization take turns
			return pg.Classify(err, "lock the batches of organization %d", b.Organization)
		}
		running, err := q.CountRunningBatches(ctx, b.Organization)
		if err != nil {
			return pg.Classify(err, "count the batches of organization %d", b.Organization)
		}
		if running >= int64(most) {
			return fault.New(fault.Refused, "found %d batches of organization %d that are running, expected at most %d with this one", running,
				b.Organization, most)
		}
		err = q.ForgetBatches(ctx, query.ForgetBatchesParams{Organization: b.Organization, Before: b.CreatedAt.Add(-kept), Most: keptMost})
		if err != nil {
			return pg.Classify(err, "forget batches of organization %d", b.Organization)
		}
		id, err = q.SaveBatch(ctx, query.SaveBatchParams{
			Organization: b.Organization, Action: string(b.Action), Filter: encoded, Reason: b.Reason, StartedBy: b.StartedBy, Rate: int32(b.Rate),
			Position: b.Position, CreatedAt: b.CreatedAt,
		})
		return pg.Classify(err, "save a batch of organization %d", b.Organization)
	})
	return id, err
}

// batchOf decodes a row.
func batchOf(row query.Batch) (batch.Batch, error) {
	b := batch.Batch{
		ID: row.ID, Organization: row.Organization, Action: batch.Action(row.Action), State: batch.State(row.State), Reason: row.Reason,
		StartedBy: row.StartedBy, Rate: int(row.Rate), Position: row.Position, Finished: row.Done, Refused: row.Refused,
		LastRefusal: row.LastRefusal, CreatedAt: row.CreatedAt,
	}
	if row.EndedAt != nil {
		b.EndedAt = *row.EndedAt
	}
	var f filter
	if err := json.Unmarshal(row.Filter, &f); err != nil {
		return b, fmt.Errorf("decode batch %d of organization %d: %w", row.ID, row.Organization, err)
	}
	b.Filter, b.Workflows, b.To, b.Total, b.AtLeast = f.Query, f.Workflows, f.To, f.Total, f.AtLeast
	return b, nil
}

func batchesOf(rows []query.Batch, err error) ([]batch.Batch, error) {
	if err != nil {
		return nil, pg.Classify(err, "read batches")
	}
	all := make([]batch.Batch, len(rows))
	for i, row := range rows {
		if all[i], err = batchOf(row); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// FindBatch reads a batch.
func (s *Store) FindBatch(ctx context.Context, organization, id int64) (batch.Batch, error) {
	row, err := s.queries.FindBatch(ctx, query.FindBatchParams{Organization: organization, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return batch.Batch{}, fault.New(fault.NotFound, "there is no batch %d in organization %d", id, organization)
	}
	if err != nil {
		return batch.Batch{}, pg.Classify(err, "find batch %d", id)
	}
	return batchOf(row)
}

// ListBatches reads a page of batches.
func (s *Store) ListBatches(ctx context.Context, organization, before int64, limit int) ([]batch.Batch, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return batchesOf(s.queries.ListBatches(ctx, query.ListBatchesParams{Organization: organization, ID: before, Limit: int32(limit)}))
}

// StopBatch ends a batch.
func (s *Store) StopBatch(ctx context.Context, organization, id int64, now time.Time) error {
	n, err := s.queries.StopBatch(ctx, query.StopBatchParams{Organization: organization, ID: id, Now: now})
	if err == nil && n == 0 {
		_, err = s.FindBatch(ctx, organization, id)
		return err
	}
	return pg.Classify(err, "stop batch %d", id)
}

// TakeBatches takes what is due.
func (s *Store) TakeBatches(ctx context.Context, now, again time.Time, limit int) ([]batch.Batch, error) {
	return batchesOf(s.queries.TakeBatches(ctx, query.TakeBatchesParams{Now: now, Again: again, Most: int32(limit)}))
}

// AdvanceBatch stores progress.
func (s *Store) AdvanceBatch(ctx context.Context, b batch.Batch, p batch.Progress) error {
	return pg.Classify(s.queries.AdvanceBatch(ctx, query.AdvanceBatchParams{
		Organization: b.Organization, ID: b.ID, Was: p.Was, Position: p.Position, Done: p.Finished, Refused: p.Refused,
		LastRefusal: p.LastRefusal, Ended: p.Ended, Now: p.Now, NextAt: p.Next,
	}), "store the progress of batch %d", b.ID)
}

// NextBatch is when the next batch is due.
func (s *Store) NextBatch(ctx context.Context) (time.Time, error) {
	at, err := s.queries.NextBatch(ctx)
	if err != nil || at.Unix() == 0 {
		return time.Time{}, pg.Classify(err, "find the next batch")
	}
	return at, nil
}
