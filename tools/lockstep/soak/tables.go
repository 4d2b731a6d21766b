package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// records are the tables that keep something of each version, each rollout or each run for ever, or for as long as an operator says.
// Every other table is a queue, an index of what is in progress, or configuration: it must not grow with the rollouts.
func records() map[string][]string {
	return map[string][]string{
		"domain": {
			"cd_versions", "cd_version_sets", "cd_version_set_entries", "cd_rollouts", "cd_rollout_environments", "cd_deployments",
			"cd_deployment_snapshots", "cd_deployment_attempts", "cd_rollout_transitions", "cd_rollout_environment_transitions", "cd_deployment_transitions",
			"cd_rollout_gates", "cd_handoffs", "inbox",
		},
		// Runs and their histories; what came, until event_retention is over; which events were taken, for thirty days.
		"workflow": {"execution", "entry", "event", "event_key", "inbox"},
		"registry": {"inbox"},
	}
}

// tables counts the rows of every table, the bytes of those that are no records, and the connections, of each service's schema.
func (m *meter) tables(ctx context.Context, values map[string]float64) error {
	for service, kept := range records() {
		schema := m.stack.Schema(service)
		rows, err := m.db.Query(ctx, `SELECT tablename FROM pg_tables WHERE schemaname = $1`, schema)
		if err != nil {
			return fmt.Errorf("tables of %s: %w", service, err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("tables of %s: %w", service, err)
		}
		for _, name := range names {
			var count, bytes int64
			table := pgx.Identifier{schema, name}.Sanitize()
			if err := m.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM `+table+`), pg_total_relation_size($1::regclass)`, table).Scan(&count,
				&bytes); err != nil {
				return fmt.Errorf("count %s.%s: %w", service, name, err)
			}
			if slices.Contains(kept, name) {
				values[service+"."+name+": records"] = float64(count)
				continue
			}
			values[service+"."+name+": rows"] = float64(count)
			values[service+": queues"] += float64(bytes)
		}
		var connections int64
		err = m.db.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name = 'lockstep/' || $1`, schema).
			Scan(&connections)
		if err != nil {
			return fmt.Errorf("connections of %s: %w", service, err)
		}
		values["database, "+service+": connections"] = float64(connections)
	}
	return nil
}
