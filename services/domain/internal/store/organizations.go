package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

// OrganizationsOfIdentity implements access.Store.
func (s *Store) OrganizationsOfIdentity(ctx context.Context, issuer, subject string) ([]core.Organization, error) {
	rows, err := query.New(s.deps.Pool).OrganizationsOfIdentity(ctx, issuer, subject)
	return convertAll(rows, func(r query.OrganizationsOfIdentityRow) core.Organization {
		return core.Organization{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt}
	}), pg.Classify(err, "find the organizations of an identity")
}

// OrganizationsWithMember implements access.Store.
func (s *Store) OrganizationsWithMember(ctx context.Context, name string) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithMember(ctx, name)
	return ids, pg.Classify(err, "find the organizations of a member")
}

// OrganizationsWithProviderSession implements access.Store.
func (s *Store) OrganizationsWithProviderSession(ctx context.Context, session string) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithProviderSession(ctx, session)
	return ids, pg.Classify(err, "find the organizations of a session")
}

// AllOrganizations implements access.Store.
func (s *Store) AllOrganizations(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Organization], error) {
	return list(ctx, s.reader, organization, p, core.OrderCreated, "organizations",
		func(q *query.Queries, w core.Window) ([]query.ListOrganizationsRow, error) {
			return q.ListOrganizations(ctx, query.ListOrganizationsParams{
				Above: w.Above.Number, Below: w.Below.Number,
				Falling: w.Falling, AtMost: limit(w),
			})
		}, func(r query.ListOrganizationsRow) core.Organization {
			return core.Organization{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt}
		}, func(o core.Organization) core.Position { return core.Position{Number: o.ID} })
}

// CountAllOrganizations implements access.Store.
func (s *Store) CountAllOrganizations(ctx context.Context, organization int64) (int, error) {
	return count(ctx, s.reader, organization, "organizations", func(q *query.Queries) (int64, error) { return q.CountOrganizations(ctx) })
}

// NewOrganizationID implements access.Store.
func (s *Store) NewOrganizationID(ctx context.Context) (int64, error) {
	id, err := query.New(s.deps.Pool).NextOrganizationID(ctx)
	return id, pg.Classify(err, "number an organization")
}

// inTwo is in for two organizations, one after the other, in one transaction.
func (s *Store) inTwo(
	ctx context.Context, first int64, do func(context.Context, *tx) error, second int64, then func(context.Context, *tx) error,
) error {
	return pg.InTx(ctx, s.deps.Pool, func(t pgx.Tx) error {
		for _, part := range []struct {
			organization int64
			do           func(context.Context, *tx) error
		}{{first, do}, {second, then}} {
			err := entered(ctx, t, part.organization, func(t pgx.Tx, _ *query.Queries) error { return s.inside(ctx, t, part.organization, part.do) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// IdentityOf implements view.Reads.
func (r reader) IdentityOf(ctx context.Context, organization, member int64) (issuer, subject string, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.IdentityOfMember(ctx, organization, member)
		issuer, subject = row.Issuer, row.Subject
		return missing(err, "member", member)
	})
	return issuer, subject, err
}

// AddOrganization implements access.Tx.
func (t *tx) AddOrganization(ctx context.Context, name string) (core.Organization, error) {
	row, err := t.q.InsertOrganization(ctx, t.organization, name)
	return core.Organization{ID: row.ID, Name: row.Name, CreatedAt: row.CreatedAt}, pg.Classify(err, "add organization %q", name)
}

// LockOrganization implements access.Tx.
func (t *tx) LockOrganization(ctx context.Context) (core.Organization, error) {
	row, err := t.q.LockOrganization(ctx, t.organization)
	return core.Organization{ID: row.ID, Name: row.Name, CreatedAt: row.CreatedAt}, missing(err, "organization", t.organization)
}

// RenameOrganization implements access.Tx.
func (t *tx) RenameOrganization(ctx context.Context, name string) (core.Organization, error) {
	row, err := t.q.RenameOrganization(ctx, name, t.organization)
	return core.Organization{ID: row.ID, Name: row.Name, CreatedAt: row.CreatedAt}, pg.Classify(err, "rename organization %d", t.organization)
}
