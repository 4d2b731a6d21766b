// Package eventtypes is the store of the types of events that organizations have declared.
package eventtypes

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/eventtype"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Store keeps types in the tables of the service.
type Store struct {
	pool    *pgxpool.Pool
	queries *query.Queries
}

var _ eventtype.Store = (*Store)(nil)

// New makes a Store over a pool whose schema has been migrated.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: pool, queries: query.New(pool)} }

// SaveEventType stores a type, or replaces it; changed is false for the same content.
func (s *Store) SaveEventType(ctx context.Context, t eventtype.Type, most int) (changed bool, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.queries.WithTx(tx)
		if err := q.LockEventTypes(ctx, t.Organization); err != nil {
			return pg.Classify(err, "lock the event types of organization %d", t.Organization)
		}
		others, err := q.CountEventTypes(ctx, query.CountEventTypesParams{Organization: t.Organization, ExceptType: t.Name})
		if err != nil {
			return pg.Classify(err, "count the event types of organization %d", t.Organization)
		}
		if others >= int64(most) {
			return fault.New(fault.Refused, "found %d event types of organization %d, expected at most %d with this one", others,
				t.Organization, most)
		}
		_, err = q.SaveEventType(ctx, query.SaveEventTypeParams{
			Organization: t.Organization, Type: t.Name, Description: t.Description, Schema: string(t.Schema), DeclaredBy: t.By, DeclaredAt: t.At,
		})
		if changed = !errors.Is(err, pgx.ErrNoRows); !changed {
			return nil
		}
		return pg.Classify(err, "save event type %q", t.Name)
	})
	return changed && err == nil, err
}

// EventTypes reads the types of an organization, by name.
func (s *Store) EventTypes(ctx context.Context, organization int64) ([]eventtype.Type, error) {
	rows, err := s.queries.EventTypes(ctx, organization)
	if err != nil {
		return nil, pg.Classify(err, "read the event types of organization %d", organization)
	}
	all := make([]eventtype.Type, len(rows))
	for i, row := range rows {
		all[i] = eventtype.Type{
			Organization: organization, Name: row.Type, Description: row.Description, Schema: row.Schema, Version: int(row.Version),
			By: row.DeclaredBy, At: row.DeclaredAt,
		}
	}
	return all, nil
}

// DeleteEventType deletes a type; false if there is none.
func (s *Store) DeleteEventType(ctx context.Context, organization int64, name string) (bool, error) {
	n, err := s.queries.DeleteEventType(ctx, query.DeleteEventTypeParams{Organization: organization, Type: name})
	return n > 0, pg.Classify(err, "delete event type %q", name)
}
