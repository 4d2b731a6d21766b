package domain

import (
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// D65: what is done with an application that is rolled out all day costs no more because it has been for years. A rollout is begun, goes
// through and is taken back beside a history, and beside one that is three times as long; all that the database reads meanwhile counts.
func TestNoChangeWalksTheHistoryOfItsApplication(t *testing.T) {
	long(t)
	t.Parallel()
	const (
		times, rollouts = 3, 3000
		ratio, slack    = 1.25, 200
	)
	short, long := changesBeside(t, rollouts), changesBeside(t, times*rollouts)
	for name, n := range long {
		t.Logf("%s reads %d rows beside %d rollouts, and %d beside %d", name, short[name], rollouts, n, times*rollouts)
		if float64(n) > float64(short[name])*ratio+slack {
			t.Errorf("%s reads %d rows beside %d rollouts, and %d beside %d", name, short[name], rollouts, n, times*rollouts)
		}
	}
}

// changesBeside is how many rows each change reads of an application that has had so many rollouts.
func changesBeside(t *testing.T, rollouts int) map[string]int64 {
	t.Helper()
	w := clocked(t)
	first := w.rollout(w.set)
	w.succeed(first)
	w.repeated(first, rollouts)
	conn, err := w.pool.Acquire(t.Context())
	w.ok(err)
	for _, sql := range []string{
		`SET session_replication_role = replica`,
		`INSERT INTO cd_deployments (organization_id, rollout_environment_id, service_id, state, started_at, finished_at)
			SELECT e.organization_id, e.id, s.id, CASE e.state WHEN 'completed' THEN 'healthy' ELSE 'failed' END, e.started_at, e.finished_at
			FROM cd_rollout_environments e JOIN cd_services s ON s.organization_id = e.organization_id
			ON CONFLICT DO NOTHING`,
		`INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type, principal_id, triggered_by)
			SELECT t.organization_id, r.id, t.from_state, t.to_state, t.event, t.gate_id, t.principal_type, t.principal_id, t.triggered_by
			FROM cd_rollout_transitions t JOIN cd_rollouts r ON r.organization_id = t.organization_id AND r.id <> t.rollout_id`,
		`UPDATE cd_cells c SET live_rollout_environment_id = e.id, latest_rollout_environment_id = e.id FROM (
			SELECT environment_id, max(id) AS id FROM cd_rollout_environments WHERE state = 'completed' GROUP BY environment_id
		) e WHERE e.environment_id = c.environment_id`,
		`RESET session_replication_role`,
		`VACUUM ANALYZE`,
		`SELECT pg_stat_force_next_flush()`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		w.ok(err)
	}
	conn.Release()
	w.service.pool.Reset()
	costs := map[string]int64{}
	cost := func(name string, do func()) {
		before := w.rowsRead()
		do()
		costs[name] = w.rowsRead() - before
	}
	next := w.release(2)
	var r core.Rollout
	w.pool.Reset()
	cost("to begin a rollout", func() { r = w.rollout(next) })
	cost("to hand it over", w.handOver)
	cost("all that is reported of it", func() { w.succeed(r) })
	cost("to take it back", func() {
		_, err := w.rollouts.RollbackRollout(t.Context(), user(), rollout.Rollback{RolloutID: r.ID})
		w.ok(err)
	})
	return costs
}
