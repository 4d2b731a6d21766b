package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg/pgtest"
)

// asked is a statement of ours as it went to the database.
type asked struct {
	sql  string
	args []any
	// custom is whether its transaction has it planned for its values, and by indexes.
	custom bool
}

// name is what the statement is called in internal/store/queries.
func (a asked) name() string { return strings.Fields(a.sql)[2] }

// recorder takes down the statements of reads. They travel as batches: what a transaction begins with and the first query
// are one journey.
type recorder struct {
	mu  sync.Mutex
	all []asked
}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	custom := false
	for _, q := range d.Batch.QueuedQueries {
		a := asked{sql: q.SQL, args: q.Arguments, custom: custom}
		switch {
		case !strings.HasPrefix(q.SQL, "-- name: "): // what a transaction begins and ends with
		case a.name() == "EnterOrganization":
		case a.name() == "PlanForValues":
			custom = true
		default:
			r.all = append(r.all, a)
		}
	}
	return ctx
}

func (*recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take answers what was asked since the last time.
func (r *recorder) take() []asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// plan is a node of a plan, as EXPLAIN tells it.
type plan struct {
	Node     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Plans    []plan `json:"Plans"`
}

// scans are the tables that a plan reads from one end to the other.
func (p plan) scans() (tables []string) {
	if strings.HasSuffix(p.Node, "Seq Scan") {
		tables = append(tables, p.Relation)
	}
	for _, below := range p.Plans {
		tables = append(tables, below.scans()...)
	}
	return tables
}

// explain is the plan of a statement in the organization, as the service would get it: for any values, or for these.
func explain(ctx context.Context, pool *pgxpool.Pool, a asked) (plan, error) {
	var found []struct{ Plan plan }
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`SELECT set_config('lockstep.organization', '%d', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', '%t', true)`, org, !a.custom)); err != nil {
			return err
		}
		statement, args := "EXPLAIN (FORMAT JSON) "+a.sql, a.args
		if !a.custom {
			if _, err := tx.Exec(ctx, "PREPARE explained AS "+a.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			statement, args = "EXPLAIN (FORMAT JSON) EXECUTE explained", []any{pgx.QueryExecModeSimpleProtocol}
			if len(a.args) > 0 {
				statement += "(" + strings.Join(slices.Repeat([]string{"NULL"}, len(a.args)), ", ") + ")"
			}
		}
		var text []byte
		if err := tx.QueryRow(ctx, statement, args...).Scan(&text); err != nil {
			return err
		}
		if !a.custom {
			if _, err := tx.Exec(ctx, "DEALLOCATE explained", pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return json.Unmarshal(text, &found)
	})
	if err != nil || len(found) != 1 {
		return plan{}, fmt.Errorf("explain %s: %d plans, %w", a.name(), len(found), err)
	}
	return found[0].Plan, nil
}

// fill makes the organization that tools/bench/domain measures, a tenth to a fifth of it, and answers which tables are big.
func (f *fixture) fill() []string {
	f.t.Helper()
	seed, err := os.ReadFile(filepath.Join("..", "..", "tools", "bench", "domain", "seed.sql"))
	f.ok(err)
	conn, err := f.pool.Acquire(f.t.Context())
	f.ok(err)
	defer conn.Release()
	for setting, n := range map[string]int{"applications": 2000, "environments": 50, "rollouts": 10_000, "active": 200, "asking": 30} {
		_, err := conn.Exec(f.t.Context(), `SELECT set_config($1, $2, false)`, "bench."+setting, fmt.Sprint(n))
		f.ok(err)
	}
	f.ok(conn.Conn().PgConn().Exec(f.t.Context(), string(seed)).Close())
	tables, err := conn.Query(f.t.Context(), `SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`)
	f.ok(err)
	all, err := pgx.CollectRows(tables, pgx.RowTo[string])
	f.ok(err)
	_, err = conn.Exec(f.t.Context(), "ANALYZE "+strings.Join(all, ", ")) // these alone: other tests have theirs beside them
	f.ok(err)
	tables, err = conn.Query(f.t.Context(), `SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND reltuples >= 2000`)
	f.ok(err)
	big, err := pgx.CollectRows(tables, pgx.RowTo[string])
	f.ok(err)
	return big
}

// TestNoPageReadsABigTableWhole: what a page costs does not grow with the rows outside of it, so no plan of a list or a page
// has a sequential scan of a table with many rows. The plans are those for any values, or, where the service asks for
// that, for the values given.
func TestNoPageReadsABigTableWhole(t *testing.T) {
	t.Parallel()
	const (
		cells = `nodes { application { id name } newest { name } cells { environment { id name } readiness live { id name } liveSince latestVersionSet { name } state health gates { gateId }
			reconciliation { drift since } latest { rollout { id } } } } pageInfo { hasNextPage endCursor }`
		matrix = `{ matrix(first: 20%s) { ` + cells + ` } }`
	)
	f := setup(t)
	big := f.fill()
	for _, table := range []string{"cd_applications", "cd_cells", "cd_versions", "cd_version_sets", "cd_rollouts", "cd_rollout_environments", "cd_deployments", "cd_deployment_transitions"} {
		if !slices.Contains(big, table) {
			t.Fatalf("%s has few rows; the plans mean nothing", table)
		}
	}
	r := &recorder{}
	config := pgtest.As(t, f.db, role).Config()
	config.ConnConfig.Tracer = r
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	f.ok(err)
	t.Cleanup(pool.Close)
	drivers, err := givenDrivers(t.Context(), Config{}, slog.New(slog.DiscardHandler))
	f.ok(err)
	f.ok(f.store.EnsureOwner(t.Context(), ownerOrganization, owner, ownerName))
	s, err := assemble(pool, drivers, nil, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handler, err := s.handler(Config{BootstrapToken: "token"})
	f.ok(err)

	// What would be a finding is one.
	if p, err := explain(t.Context(), pool, asked{sql: "-- name: Bad :one\nSELECT count(*) FROM cd_rollouts WHERE workflow_ref = $1", args: []any{"x"}}); err != nil || !slices.Contains(p.scans(), "cd_rollouts") {
		t.Fatalf("a sequential scan was not seen: %v, %+v", err, p)
	}
	for _, page := range []struct{ name, query string }{
		{"matrix", fmt.Sprintf(matrix, "")},
		{"matrix, further on", fmt.Sprintf(matrix, `, after: "bmFtZTphcHBsaWNhdGlvbi0wMTAwMA"`)}, // name:application-01000
		{"matrix, searched", fmt.Sprintf(matrix, `, filter: {text: "123"}`)},
		{"matrix, one environment", fmt.Sprintf(matrix, `, filter: {environments: ["environment-07"]}`)},
		{"matrix, failed", fmt.Sprintf(matrix, `, filter: {states: [FAILED]}`)},
		{"matrix, failed nowhere near", fmt.Sprintf(matrix, `, filter: {states: [CANCELLED]}`)},
		{"matrix, completed", fmt.Sprintf(matrix, `, filter: {states: [COMPLETED]}`)},
		{"matrix, degraded", fmt.Sprintf(matrix, `, filter: {health: [DEGRADED]}`)},
		{"matrix, healthy", fmt.Sprintf(matrix, `, filter: {health: [HEALTHY]}`)},
		{"matrix, waiting", fmt.Sprintf(matrix, `, filter: {waiting: true}`)},
		{"matrix, not waiting", fmt.Sprintf(matrix, `, filter: {waiting: false}`)},
		{"matrix, a driver", fmt.Sprintf(matrix, `, filter: {drivers: ["argo-rollouts@1"]}`)},
		{"rollout with journal", `{ rollout(id: "rollout_9990") { id state isRollback awaitingApproval application { name } versionSet { name entries { service { name } version { name digest } } }
			waitingOn { kind detail } viewerCan { action allowed } environments { id environment { name } deployments { state service { name } gates { gateId } snapshot { commitSha } versions { name } } }
			journal(first: 100) { nodes { subject event principal { name } } } } }`},
		{"rollouts", `{ rollouts(first: 50) { nodes { id state application { name } versionSet { name } } } }`},
		{"rollouts under way", `{ rollouts(first: 50, states: [PENDING, IN_PROGRESS, PAUSED]) { nodes { id state awaitingApproval } } }`},
		{"waiting for me", `{ gatesForMe(first: 50) { nodes { gateId reason rollout { id application { name } } viewerCan { action allowed } } } }`},
		{"version sets of an application", `{ application(name: "application-00007") { versionSets(first: 20) { nodes { name entries { version { name } } } pageInfo { endCursor } } rollouts(first: 5) { nodes { id } }
			services { artifactSources { versions(first: 20) { nodes { name } } } } activeRollout { id } } }`},
		{"applications", `{ applications(first: 20) { nodes { name services { name } environments { environment { name } live { name } } activeRollout { id } } } }`},
		{"journal", `{ journal(first: 50) { nodes { cursor rollout { id application { name } } transition { event } } } }`},
		{"journal, from the middle", `{ journal(first: 50, after: "MTEwMDAw") { nodes { cursor rollout { id } transition { event } } } }`}, // 110000
	} {
		body, err := json.Marshal(map[string]any{"query": page.query})
		f.ok(err)
		r.take() // what was asked between the pages
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/graphql", bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer token")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		all := r.take()
		if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), `"errors"`) || len(all) == 0 {
			t.Errorf("%s: answered %d by %d queries: %.500s", page.name, answer.Code, len(all), answer.Body)
		}
		for _, a := range all {
			p, err := explain(t.Context(), pool, a)
			f.ok(err)
			for _, table := range p.scans() {
				if slices.Contains(big, table) {
					t.Errorf("%s: %s reads %s from one end to the other", page.name, a.name(), table)
				}
			}
		}
	}
}
