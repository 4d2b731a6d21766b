package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
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

// theTables are the tables whose rows belong to organizations, the columns of their keys, and the columns of bytes, which hold digests and
// what is sealed. sqlc does not know the catalogue.
const theTables = `-- name: TheTables :many
SELECT c.relname::text,
    (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
     WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[])),
    coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid = 'bytea'::regtype), '{}')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'organization_id')
ORDER BY c.relname`

// exported reports whether an export has a table: not the answers that are repeated to a client, some of which hold tokens, nor the ends of
// names, which are an index.
func (t table) exported() bool {
	return t.name != "cd_requests" && t.name != "cd_application_name_ends"
}

// table is one whose rows belong to organizations.
type table struct {
	name  string
	key   []string
	bytes []string
}

// hidden are the columns of a table that no export has: what opens a door, what a proposed change is carried out with, which nobody is
// shown, and bytes, but for those of drivers, which their authors have published.
func (t table) hidden() []string {
	switch t.name {
	case "cd_driver_bundles":
		return []string{}
	case "cd_forge_hooks":
		return append([]string{"key"}, t.bytes...)
	case "cd_proposed_changes":
		return append([]string{"input"}, t.bytes...)
	case "cd_access_tokens":
		return append([]string{"provider_session"}, t.bytes...)
	default:
		return append([]string{}, t.bytes...)
	}
}

// EachRow implements access.Store.
func (s *Store) EachRow(ctx context.Context, organization int64, row func(table string, content []byte) error) error {
	begun := false
	return pg.InSnapshot(ctx, s.deps.Pool, func(t pgx.Tx) error {
		if begun { // what was handed on cannot be taken back
			return fault.New(fault.Terminal, "the database was lost while rows of organization %d were read", organization)
		}
		return entered(ctx, t, organization, func(t pgx.Tx, q *query.Queries) error {
			if err := q.InUTC(ctx); err != nil {
				return pg.Classify(err, "set the time zone")
			}
			tables, err := tablesOf(ctx, t)
			if err != nil {
				return err
			}
			begun = true
			if err := rowsOf(ctx, t, table{name: "cd_organizations", key: []string{"id"}}, "id", organization, row); err != nil {
				return err
			}
			for _, one := range tables {
				if !one.exported() {
					continue
				}
				if err := rowsOf(ctx, t, one, "organization_id", organization, row); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func tablesOf(ctx context.Context, t pgx.Tx) ([]table, error) {
	rows, err := t.Query(ctx, theTables)
	if err != nil {
		return nil, pg.Classify(err, "find the tables")
	}
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (one table, err error) {
		err = row.Scan(&one.name, &one.key, &one.bytes)
		return one, pg.Classify(err, "find the tables")
	})
	return tables, pg.Classify(err, "find the tables")
}

// rowsOf hands on the rows of a table whose column of has the organization, in the order of their key.
func rowsOf(
	ctx context.Context, t pgx.Tx, of table, column string, organization int64, row func(table string, content []byte) error,
) error {
	order := ""
	for _, name := range of.key {
		order += ", " + pgx.Identifier{name}.Sanitize()
	}
	sql := "SELECT to_jsonb(one) - $2::text[] FROM " + pgx.Identifier{of.name}.Sanitize() + " AS one WHERE " +
		pgx.Identifier{column}.Sanitize() + " = $1 ORDER BY " + order[2:]
	rows, err := t.Query(ctx, sql, organization, of.hidden())
	if err != nil {
		return pg.Classify(err, "read table %s", of.name)
	}
	var content []byte
	_, err = pgx.ForEachRow(rows, []any{&content}, func() error { return row(of.name, content) })
	return pg.Classify(err, "read table %s", of.name)
}
