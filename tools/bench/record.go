package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// records is B15: what a workflow leaves in the database, by kind of record in the write-ahead log, and by table and what
// is done to its rows. It is where a workflow that has become dearer shows what has.
func records(ctx context.Context, w *world, r *report) error {
	if _, err := w.db.Exec(ctx, "CREATE EXTENSION pg_walinspect"); err != nil {
		return err
	}
	for _, c := range []struct{ steps, clients, n int }{{1, 64, 2000}, {10, 64, 2000}, {10, 512, 3000}} {
		inputs := fmt.Sprintf(`{"steps": %d}`, c.steps)
		run := func(prefix string, n int) error {
			_, _, err := w.drive(ctx, c.clients, n, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
				return 0, complete(ctx, client, fmt.Sprintf("%s-%d-%d-%d", prefix, c.steps, c.clients, i), stepsProgram, inputs)
			})
			return err
		}
		n := w.scaled(c.n)
		// Pages are written whole once after a checkpoint, which says nothing about workflows: the first runs pay for it.
		if err := run("first", n); err != nil {
			return err
		}
		if _, err := w.db.Exec(ctx, "SELECT pg_stat_reset()"); err != nil {
			return err
		}
		var from string
		if err := w.db.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&from); err != nil {
			return err
		}
		if err := run("second", n); err != nil {
			return err
		}
		if err := w.recorded(ctx, r, from, fmt.Sprintf("%d-step", c.steps), c.clients, n); err != nil {
			return err
		}
	}
	return nil
}

// recorded adds what was written since from.
func (w *world) recorded(ctx context.Context, r *report, from, scenario string, clients, n int) error {
	const perRecord = `SELECT "resource_manager/record_type" || ' ' || (combined_size / $2::int)::int || ' B (' || round(count::numeric / $2::int, 1) || ')'
FROM pg_get_wal_stats($1::pg_lsn, pg_current_wal_flush_lsn(), true) WHERE combined_size > 20 * $2::int ORDER BY combined_size DESC`
	const perTable = `SELECT relname || ' ' || round(n_tup_ins::numeric / $1::int, 1) || '+ ' || round(n_tup_upd::numeric / $1::int, 1) || '~ (' || round(n_tup_hot_upd::numeric / $1::int, 1) || ' hot) '
|| round(n_tup_del::numeric / $1::int, 1) || '-' FROM pg_stat_user_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > $1 / 10
ORDER BY relname`
	for what, query := range map[string]struct {
		sql  string
		args []any
	}{"WAL": {perRecord, []any{from, n}}, "rows": {perTable, []any{n}}} {
		rows, err := w.db.Query(ctx, query.sql, query.args...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		r.add(row{
			Scenario: scenario + ", " + what, Engine: "lockstep", Clients: clients, N: n, Unit: "workflows",
			Note: strings.Join(lines, " · "),
		})
	}
	return nil
}
