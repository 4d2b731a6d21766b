// Package reconcile is the store of what other services are reconciled with after their database was restored to an earlier time.
package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/reconcile"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Deps are what a Store works with.
type Deps struct {
	Pool *pgxpool.Pool
	// Encode makes the wire form of an event.
	Encode func(e history.Emit, trace string) (event.Sealed, error)
	// Add stores events for publication, in a transaction; Committed is called after it.
	Add       func(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error
	Committed func()
}

// Store reads the tables of the service.
type Store struct {
	Deps

	queries *query.Queries
}

var _ reconcile.Store = (*Store)(nil)

// New makes a Store over a pool whose schema has been migrated.
func New(d Deps) *Store { return &Store{Deps: d, queries: query.New(d.Pool)} }

// Reports implements reconcile.Store.
func (s *Store) Reports(ctx context.Context, organization int64, w reconcile.Which) ([]reconcile.Report, error) {
	rows, err := s.queries.Reports(ctx, query.ReportsParams{
		Organization: organization, Source: event.SourceWorkflow, After: w.After, Since: w.Since, AtMost: int32(w.Limit), Workflow: w.Workflow,
		Prefix: event.Prefix,
	})
	if err != nil {
		return nil, pg.Classify(err, "read what was reported in organization %d", organization)
	}
	all := make([]reconcile.Report, len(rows))
	for i, r := range rows {
		all[i] = reconcile.Report{Position: r.ID, ID: r.EventID, Source: r.Source, Type: r.Type, Workflow: r.Workflow, Time: r.OccurredAt}
	}
	return all, nil
}

// Repeat implements reconcile.Store. An event that still waits to be published is published once.
func (s *Store) Repeat(ctx context.Context, organization int64, ids []string) (found int, err error) {
	err = pg.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, err := s.queries.WithTx(tx).ReportsByID(ctx, query.ReportsByIDParams{
			Organization: organization, Source: event.SourceWorkflow, EventIds: ids,
		})
		if err != nil {
			return err
		}
		var wire []event.Sealed
		for _, r := range rows {
			if event.Own(r.Type) { // of a type that an organization has declared: it never leaves this service
				continue
			}
			e, err := s.Encode(history.Emit{
				ID: r.EventID, Organization: organization, Workflow: r.Workflow, Type: r.Type, Data: r.Data, Time: r.OccurredAt,
			}, r.Trace)
			if err != nil {
				return fmt.Errorf("encode event %q: %w", r.EventID, err)
			}
			wire = append(wire, e)
		}
		found = len(wire)
		return s.Add(ctx, tx, wire...)
	})
	if err != nil {
		return 0, pg.Classify(err, "publish %d events of organization %d again", len(ids), organization)
	}
	s.Committed()
	return found, nil
}

// Passages implements reconcile.Store.
func (s *Store) Passages(
	ctx context.Context, organization int64, workflows []string, since time.Time,
) ([]reconcile.Passage, error) {
	rows, err := s.queries.GrantedPassages(ctx, query.GrantedPassagesParams{
		Organization: organization, Workflows: workflows, Since: since, Type: event.TypeRolloutPassageGranted, Source: event.SourceDomain,
	})
	if err != nil {
		return nil, pg.Classify(err, "read the passages of %d runs", len(workflows))
	}
	all := make([]reconcile.Passage, len(rows))
	for i, r := range rows {
		all[i] = reconcile.Passage{Workflow: r.Workflow, Gate: r.Gate}
		if err := json.Unmarshal(r.Pinned, &all[i].Pinned); err != nil {
			return nil, fmt.Errorf("read the weights of passage %s of %s: %w", r.Gate, r.Workflow, err)
		}
	}
	return all, nil
}

// Branches implements reconcile.Store.
func (s *Store) Branches(ctx context.Context, organization int64, offset, limit int) ([]reconcile.Branch, error) {
	rows, err := s.queries.Branches(ctx, query.BranchesParams{
		Organization: organization, FromRow: int32(offset), AtMost: int32(limit),
	})
	if err != nil {
		return nil, pg.Classify(err, "read the repositories of organization %d", organization)
	}
	all := make([]reconcile.Branch, len(rows))
	for i, r := range rows {
		all[i] = reconcile.Branch{Repository: r.Repository, Name: r.Branch}
	}
	return all, nil
}
