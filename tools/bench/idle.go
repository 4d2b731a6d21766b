package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// idleness is what an installation uses that has nothing to do, as parts of a core.
type idleness struct {
	service, postgres float64
	// parts are PostgreSQL's, by what its processes are for.
	parts map[string]float64
	// commits are those of a second, the measurement's own among them.
	commits float64
}

// idleFor is how long idleness is looked at: the kernel counts processor time in hundredths of a second.
const idleFor = 20 * time.Second

// idle measures idleness.
func (w *world) idle(ctx context.Context) (idleness, error) {
	before, err := w.usage(ctx)
	if err != nil {
		return idleness{}, err
	}
	if err := pause(ctx, idleFor); err != nil {
		return idleness{}, err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return idleness{}, err
	}
	return idleOf(after.since(before), idleFor), nil
}

// idleOf is what was used in a time, as parts of a core.
func idleOf(used usage, took time.Duration) idleness {
	of := func(d time.Duration) float64 { return d.Seconds() / took.Seconds() }
	i := idleness{
		service: of(used.service), postgres: of(used.postgres), parts: map[string]float64{},
		commits: float64(used.commits) / took.Seconds(),
	}
	for name, spent := range used.parts {
		if spent != 0 {
			i.parts[name] = of(spent)
		}
	}
	return i
}

// String is "0.42% of a core (service 0.20, PostgreSQL 0.22: sessions 0.20, walwriter 0.02) and 2.8 commits/s".
func (i idleness) String() string {
	parts := make([]string, 0, len(i.parts))
	for _, name := range slices.Sorted(maps.Keys(i.parts)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, 100*i.parts[name]))
	}
	return fmt.Sprintf("%.2f%% of a core (service %.2f, PostgreSQL %.2f: %s) and %.1f commits/s", 100*(i.service+i.postgres), 100*i.service,
		100*i.postgres, strings.Join(parts, ", "), i.commits)
}

// left is what PostgreSQL has to do yet for what has been written: workers that clean up or count, and tables that are due for one (what it
// knows of tables is not counted).
const left = `SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')
+ (SELECT count(*) FROM pg_stat_all_tables s JOIN pg_class c ON c.oid = s.relid WHERE
    s.n_dead_tup > current_setting('autovacuum_vacuum_threshold')::float8
      + current_setting('autovacuum_vacuum_scale_factor')::float8 * greatest(c.reltuples, 0)
    OR s.n_ins_since_vacuum > current_setting('autovacuum_vacuum_insert_threshold')::float8
      + current_setting('autovacuum_vacuum_insert_scale_factor')::float8 * greatest(c.reltuples, 0)
    OR (s.n_mod_since_analyze > current_setting('autovacuum_analyze_threshold')::float8
      + current_setting('autovacuum_analyze_scale_factor')::float8 * greatest(c.reltuples, 0)
      AND s.schemaname NOT IN ('pg_toast', 'pg_catalog')))`

// received drops the events that the runs have sent so far. There is no domain service here to confirm them, and without that they are sent
// again and again.
func (w *world) received(ctx context.Context) error {
	_, err := w.db.Exec(ctx, "DELETE FROM workflow.outbox")
	return err
}

// maintained returns when PostgreSQL has nothing left to do for what has been written: a checkpoint has ended, and no table is due for a
// vacuum or an analysis, or has one.
func (w *world) maintained(ctx context.Context) error {
	for {
		// What an analysis finds out is in a table that wants to be cleaned up as well.
		for _, sql := range []string{"ANALYZE", "VACUUM", "CHECKPOINT"} {
			if _, err := w.db.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := pause(ctx, time.Second); err != nil { // the counters are updated after the statement
			return err
		}
		var n int
		if err := w.db.QueryRow(ctx, left).Scan(&n); err != nil || n == 0 {
			return err
		}
	}
}
