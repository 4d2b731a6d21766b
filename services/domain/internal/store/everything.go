package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

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

// Tables that no export has: answers that are repeated to a client, some of which hold tokens; and the ends of names, which are an index.
var notExported = map[string]bool{"cd_requests": true, "cd_application_name_ends": true}

// Columns that no export has, beside those of bytes, by table: what opens a door.
var withheld = map[string][]string{
	"cd_forge_hooks": {"key"}, "cd_access_tokens": {"provider_session"},
}

// exportedBytes are columns of bytes that are not secret: a driver is what its author has published.
var exportedBytes = map[string]bool{"cd_driver_bundles.content": true}

// table is one whose rows belong to organizations.
type table struct {
	name  string
	key   []string
	bytes []string
}

// hidden are the columns of a table that no export has.
func (t table) hidden() []string {
	hidden := append([]string{}, withheld[t.name]...)
	for _, column := range t.bytes {
		if !exportedBytes[t.name+"."+column] {
			hidden = append(hidden, column)
		}
	}
	return hidden
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
				if notExported[one.name] {
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
		return one, err
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
