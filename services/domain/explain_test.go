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
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

// asked is a statement of ours as it went to the database.
type asked struct {
	sql  string
	args []any
	// planned is the statement by which its transaction has it planned for its values; empty where it has not.
	planned string
}

// name is what the statement is called in internal/store/queries.
func (a asked) name() string { return strings.Fields(a.sql)[2] }

// recorder takes down the statements of reads. They travel as batches: what a transaction begins with and the first query
// are one journey.
type recorder struct {
	mu  sync.Mutex
	all []asked
	// planned is how the transaction that each connection is in has its statements planned.
	planned map[*pgx.Conn]string
}

func (r *recorder) TraceBatchStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range d.Batch.QueuedQueries {
		a := asked{sql: q.SQL, args: q.Arguments, planned: r.planned[conn]}
		switch {
		case q.SQL == "BEGIN":
			delete(r.planned, conn)
		case !strings.HasPrefix(q.SQL, "-- name: "): // what a transaction begins and ends with
		case a.name() == "EnterOrganization":
		case a.name() == "PlanForValues":
			r.planned[conn] = q.SQL
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

// plan is a node of an executed plan, as EXPLAIN ANALYZE prints it. Rows are those of one loop.
type plan struct {
	Node            string  `json:"Node Type"`
	Relation        string  `json:"Relation Name"`
	Index           string  `json:"Index Name"`
	Rows            float64 `json:"Actual Rows"`
	Loops           float64 `json:"Actual Loops"`
	RemovedByFilter float64 `json:"Rows Removed by Filter"`
	RemovedByCheck  float64 `json:"Rows Removed by Index Recheck"`
	RemovedByJoin   float64 `json:"Rows Removed by Join Filter"`
	Plans           []plan  `json:"Plans"`
}

// visited is how many rows of tables a plan has looked at, also those that it then left out, and how often it has looked.
func (p plan) visited() (rows float64) {
	if p.Relation != "" || p.Index != "" {
		rows = p.Loops * (1 + p.Rows + p.RemovedByFilter + p.RemovedByCheck)
	}
	rows += p.Loops * p.RemovedByJoin
	for _, below := range p.Plans {
		rows += below.visited()
	}
	return rows
}

// visits is how many rows a statement visits in the organization, carried out as the service would have it: planned for any
// values, or for these.
func visits(ctx context.Context, pool *pgxpool.Pool, a asked) (float64, error) {
	var found []struct{ Plan plan }
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		settings := a.planned
		if settings == "" {
			settings = "SET LOCAL plan_cache_mode = force_generic_plan"
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lockstep.organization = '%d'; ", org)+settings,
			pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		const explain = "EXPLAIN (ANALYZE, TIMING off, FORMAT JSON) "
		statement, args := explain+a.sql, a.args
		if a.planned == "" {
			if _, err := tx.Exec(ctx, "PREPARE explained AS "+a.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			statement, args = explain+"EXECUTE explained", []any{pgx.QueryExecModeSimpleProtocol}
			for n := range a.args {
				statement += fmt.Sprintf("%c$%d", "(,"[min(n, 1)], n+1)
			}
			if len(a.args) > 0 {
				statement += ")"
			}
			args = append(args, a.args...)
		}
		var text []byte
		if err := tx.QueryRow(ctx, statement, args...).Scan(&text); err != nil {
			return err
		}
		if a.planned == "" {
			if _, err := tx.Exec(ctx, "DEALLOCATE explained", pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return json.Unmarshal(text, &found)
	})
	if err != nil || len(found) != 1 {
		return 0, fmt.Errorf("explain %s: %d plans, %w", a.name(), len(found), err)
	}
	return found[0].Plan.visited(), nil
}

// filled is an organization like the one that tools/bench/domain measures, and the API over it.
type filled struct {
	*fixture
	recorder *recorder
	reading  *pgxpool.Pool
	handler  http.Handler
	sizes    map[string]int
}

// fill makes an organization of some size, in a database of its own.
func fill(t *testing.T, sizes map[string]int) *filled {
	t.Helper()
	f := &filled{fixture: newFixture(t), recorder: &recorder{planned: map[*pgx.Conn]string{}}, sizes: sizes}
	seed, err := os.ReadFile(filepath.Join("..", "..", "tools", "bench", "domain", "seed.sql"))
	f.ok(err)
	conn, err := f.pool.Acquire(t.Context())
	f.ok(err)
	defer conn.Release()
	for setting, n := range sizes {
		_, err := conn.Exec(t.Context(), `SELECT set_config($1, $2, false)`, "bench."+setting, fmt.Sprint(n))
		f.ok(err)
	}
	f.ok(conn.Conn().PgConn().Exec(t.Context(), string(seed)).Close())
	tables, err := conn.Query(t.Context(), `SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`)
	f.ok(err)
	all, err := pgx.CollectRows(tables, pgx.RowTo[string])
	f.ok(err)
	_, err = conn.Exec(t.Context(), "ANALYZE "+strings.Join(all, ", ")) // these alone: other tests have theirs beside them
	f.ok(err)
	config := pgtest.As(t, f.db, role).Config()
	config.ConnConfig.Tracer = f.recorder
	f.reading, err = pgxpool.NewWithConfig(t.Context(), config)
	f.ok(err)
	t.Cleanup(f.reading.Close)
	drivers, err := givenDrivers(t.Context(), Config{}, slog.New(slog.DiscardHandler))
	f.ok(err)
	f.ok(f.store.EnsureOwner(t.Context(), ownerOrganization, owner, ownerName))
	s, err := assemble(f.reading, noBus{}, drivers, nil, clock.System(), Config{}, slog.New(slog.DiscardHandler))
	f.ok(err)
	f.handler, err = s.handler(Config{BootstrapToken: "token"})
	f.ok(err)
	return f
}

// cost is how many rows each statement of a page visits, and how large its answer is.
func (f *filled) cost(document, operation string, variables map[string]any) (map[string]float64, int) {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"query": document, "operationName": operation, "variables": variables})
	f.ok(err)
	f.recorder.take() // what was asked between the pages
	request := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, "/graphql", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer token")
	answer := httptest.NewRecorder()
	f.handler.ServeHTTP(answer, request)
	statements := f.recorder.take()
	if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), `"errors":[{`) || len(statements) == 0 {
		f.t.Fatalf("%s %s: answered %d by %d queries: %.500s", operation, variables, answer.Code, len(statements), answer.Body)
	}
	cost := map[string]float64{}
	for _, a := range statements {
		n, err := visits(f.t.Context(), f.reading, a)
		f.ok(err)
		cost[a.name()] += n
	}
	return cost, answer.Body.Len()
}

// sum is what all statements cost together.
func sum(cost map[string]float64) (all float64) {
	for _, n := range cost {
		all += n
	}
	return all
}

// TestAPageCostsWhatIsOnIt asks for the same pages in an organization and in one that is three times as large, and looks how many
// rows the statements visit: what a page costs does not grow with the rows outside of it. The pages are the console's own, with
// every filter that it offers, and a few that only the API has.
func TestAPageCostsWhatIsOnIt(t *testing.T) {
	long(t)
	t.Parallel()
	const (
		times = 3
		// A plan may differ a little where a table is small, as that of environments is; what grows with the organization grows by
		// times, and the smallest table that grows has 500 rows.
		ratio, slack = 1.25, 600
		// largest is how many bytes a page has at most.
		largest = 60_000
	)
	sizes := func(n int) map[string]int {
		return map[string]int{"applications": 500 * n, "environments": 50, "rollouts": 1500 * n, "active": 200 * n, "asking": 120}
	}
	small, large := fill(t, sizes(1)), fill(t, sizes(times))
	console, err := os.ReadFile(filepath.Join("internal", "console", "ui", "src", "api", "operations.graphql"))
	small.ok(err)

	// What would be a finding is one: in a table, and in a plan that removes what it has found.
	for _, sql := range []string{
		"SELECT count(*) FROM cd_rollouts WHERE workflow_ref = $1",
		"SELECT count(*) FROM cd_applications WHERE organization_id = 1 AND description = $1 AND id > 0",
	} {
		bad := asked{sql: "-- name: Bad :one\n" + sql, args: []any{"x"}}
		few, err := visits(t.Context(), small.reading, bad)
		small.ok(err)
		many, err := visits(t.Context(), large.reading, bad)
		small.ok(err)
		if many < few*(times-1) {
			t.Fatalf("%s visits %.0f and %.0f rows: what grows is not seen", sql, few, many)
		}
	}

	type page struct {
		name, operation string
		// document is the console's when empty.
		document  string
		variables func(f *filled) map[string]any
	}
	plain := func(v map[string]any) func(*filled) map[string]any { return func(*filled) map[string]any { return v } }
	var pages []page
	where := func(name string, filter map[string]any, after string) {
		pages = append(pages, page{
			name: "matrix, " + name, operation: "Where",
			variables: plain(map[string]any{"first": 20, "filter": filter, "after": after}),
		})
	}
	where("all", nil, "")
	where("further on", nil, "bmFtZTphcHBsaWNhdGlvbi0wMDMwMA") // name:application-00300
	where("further on, failed", map[string]any{"states": []string{"FAILED"}}, "bmFtZTphcHBsaWNhdGlvbi0wMDMwMA")
	for _, text := range []string{"123", "a", "nobody"} {
		where("named "+text, map[string]any{"text": text}, "")
	}
	where("one environment", map[string]any{"environments": []string{"environment-07"}}, "")
	where("waiting", map[string]any{"waiting": true}, "")
	where("not waiting", map[string]any{"waiting": false}, "")
	where("a driver", map[string]any{"drivers": []string{"argo-rollouts@1"}}, "")
	states, healths := []string{"PENDING", "IN_PROGRESS", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"},
		[]string{"HEALTHY", "PROGRESSING", "DEGRADED"}
	for _, state := range states {
		where(state, map[string]any{"states": []string{state}}, "")
		where(state+" in one environment", map[string]any{"states": []string{state}, "environments": []string{"environment-07"}}, "")
	}
	for _, health := range healths {
		where(health, map[string]any{"health": []string{health}}, "")
		where(health+" and completed", map[string]any{"health": []string{health}, "states": []string{"COMPLETED"}}, "")
		where(health+" and named", map[string]any{"health": []string{health}, "text": "123"}, "")
		where(health+" in one environment", map[string]any{"health": []string{health}, "environments": []string{"environment-07"}}, "")
	}
	newest := func(f *filled) map[string]any {
		return map[string]any{"id": fmt.Sprintf("rollout_%d", f.sizes["rollouts"]-10)}
	}
	pages = append(pages,
		page{name: "rollout with journal", operation: "RolloutPage", variables: newest},
		page{name: "old rollout with journal", operation: "RolloutPage", variables: plain(map[string]any{"id": "rollout_750"})},
		page{name: "rollouts", operation: "Rollouts", variables: plain(map[string]any{"first": 50})},
		page{name: "rollouts under way", operation: "Rollouts", variables: plain(map[string]any{"first": 50, "states": states[:3]})},
		page{
			name: "rollouts of an application", operation: "Rollouts",
			variables: plain(map[string]any{"first": 50, "application": "application-00007"}),
		},
		page{name: "waiting for me", operation: "Inbox", variables: plain(map[string]any{"first": 50})},
		page{
			name: "version sets of an application",
			document: `{ application(name: "application-00007") { versionSets(first: 20) { nodes { name entries { version { name } } } pageInfo { endCursor } } rollouts(first: 5) { nodes { id } }
			services { artifactSources { versions(first: 20) { nodes { name } } } } activeRollout { id } } }`, variables: plain(nil),
		},
		page{name: "applications", document: `{ applications(first: 20) { nodes { name services { name } environments { environment { name } live { name } } activeRollout { id } } } }`, variables: plain(nil)},
		page{
			name: "applications by name, backwards", document: `{ applications(first: 20, orderBy: NAME_DESC) { nodes { name } } }`,
			variables: plain(nil),
		},
		page{name: "rollouts by end", document: `{ rollouts(first: 50, orderBy: FINISHED_DESC) { nodes { id } } }`, variables: plain(nil)},
		page{name: "delivery metrics", document: `{ deliveryMetrics(application: "application-00007") { environment { name } leadTime { median } recoveryTime { p90 } } }`, variables: plain(nil)},
		page{
			name: "journal", document: `{ journal(first: 50) { nodes { cursor rollout { id application { name } } transition { event } } } }`,
			variables: plain(nil),
		},
		// 15000
		page{name: "journal, from the middle", document: `{ journal(first: 50, after: "MTUwMDA") { nodes { cursor rollout { id } transition { event } } } }`, variables: plain(nil)},
	)
	for _, p := range pages {
		document := p.document
		if document == "" {
			document = string(console)
		}
		few, shown := small.cost(document, p.operation, p.variables(small))
		many, size := large.cost(document, p.operation, p.variables(large))
		// Where the small organization does not fill the page, the large one may cost as much more as it shows.
		fuller := max(1, float64(size)/float64(shown))
		t.Logf("%-40s %6.0f rows, %6.0f of %d times as many, %d statements, %d bytes", p.name, sum(few), sum(many), times, len(many), size)
		if size > largest {
			t.Errorf("%s has %d bytes; expected at most %d", p.name, size, largest)
		}
		for name, n := range many {
			if n > few[name]*fuller*ratio+slack {
				t.Errorf("%s: %s visits %.0f rows, and %.0f where there are %d times as many", p.name, name, few[name], n, times)
			}
		}
	}
}
