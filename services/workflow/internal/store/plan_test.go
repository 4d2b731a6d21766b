package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// An installation begins with short tables, and a plan that was made then is kept until the statistics are read anew: a
// minute in which thousands of runs may start. So no statement of a commit may read a table or an index as a whole, whatever
// the planner believes: what it costs must not depend on how many runs there are (E43).
func TestCommitsReachEveryRowByItsKey(t *testing.T) {
	t.Parallel()
	b := planned(t)
	for _, statistics := range []string{"no table", "a few rows"} {
		for range 3 {
			everything(b)
		}
		if statistics != "no table" {
			if _, err := b.Pool.Exec(t.Context(), "ANALYZE"); err != nil {
				t.Fatal(err)
			}
		}
		seen := 0
		for _, conn := range b.Pool.AcquireAllIdle(t.Context()) {
			seen += checkPlans(t, conn, statistics)
			conn.Release()
		}
		if seen < 12 {
			t.Errorf("found %d prepared statements with statistics of %s, expected those of starts, turns, events and waits", seen, statistics)
		}
	}
}

// planned is newTestStore on connections like the service's.
func planned(t *testing.T) *testStore {
	t.Helper()
	_, config := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()}, pgtest.Migration{Name: "workflow", FS: Migrations()})
	config.Settings = Settings()
	pool, err := pg.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return newTestStoreOn(t, pool, clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)))
}

// everything calls what the store does for runs: starts, also of a run that exists and of runs with their first turns; waits, and events
// before and after them; a timer; the end.
func everything(b *testStore) {
	b.t.Helper()
	l := b.startRun(1)
	again := b.start(1)
	again.Workflow = l.Workflow
	if c, err := b.Create(b.t.Context(), again); err != nil || c.Created {
		b.t.Fatal(c, err)
	}
	first := waitFor(0, "com.example.go", history.Filter{"n": "1"})
	b.commit(b.parking(l, first))
	id := fmt.Sprintf("event-%d", b.n)
	if matched := b.receive(1, id, "com.example.go", `{"n": 1}`); matched != 1 {
		b.t.Fatalf("%d waits matched, expected 1", matched)
	}
	standing, arrived, err := b.Arrivals(b.t.Context(), l.ID)
	if err != nil || len(arrived) != 1 {
		b.t.Fatalf("%d arrivals (%v), expected 1", len(arrived), err)
	}
	l = b.load(l.ID)
	next := b.parking(l)
	next.Wakes, next.Closed, next.Next = standing.Wakes, []history.OpRef{first.Ref}, execution.Running
	consumed := b.entry(1, first.Ref, history.KindWait, `{}`)
	consumed.Event = arrived[0].Event
	next.Entries, next.LastSeq = []history.Entry{consumed}, 1
	done := b.commit(next)
	border := b.border(l)
	border.Turn, border.Wakes, border.LastSeq, border.Entries[0].Seq = done.Turn, standing.Wakes, 2, 2
	border.Consumed = []history.Want{{Type: "com.example.go", Filter: first.Filter}}
	b.commit(border)
	l = b.load(l.ID)
	if _, err := b.History(b.t.Context(), l.ID, 0, 10); err != nil {
		b.t.Fatal(err)
	}
	last := b.parking(l)
	last.Next, last.LastSeq = execution.Completed, 2
	last.Emits = []history.Emit{{
		ID: l.Ref + "/completed", Organization: 1, Workflow: l.Workflow, Type: history.TypeCompleted,
		Data: json.RawMessage(`{}`), Time: b.clock.Now(),
	}}
	b.commit(last)
	for _, next := range []execution.State{execution.Running, execution.Completed} {
		n := b.owned(2) // of whose runs nobody waits for an end
		n.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		if _, begun := b.ahead(n, next); !begun {
			b.t.Fatal("a start was not stored with its first turn")
		}
	}
}

// plan is a node of EXPLAIN (FORMAT JSON).
type plan struct {
	Node     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Index    string `json:"Index Name"`
	Cond     string `json:"Index Cond"`
	TIDs     string `json:"TID Cond"`
	Plans    []plan `json:"Plans"`
}

// whole names the tables of which p reads everything, given the first column of each index. An index is looked up in where its
// first column is given; a condition of the second alone reads all of it. The end of one is a look, too.
func (p plan) whole(first map[string]string) []string {
	var found []string
	byIndex := strings.HasPrefix(p.Node, "Index") || p.Node == "Bitmap Index Scan"
	column := first[p.Index]
	if p.Node == "Seq Scan" || byIndex && !strings.Contains(p.Cond, "("+column+" = ") && p.Cond != "("+column+" IS NOT NULL)" {
		found = append(found, strings.TrimSpace(p.Node+" "+p.Relation+" "+p.Index+" "+p.Cond))
	}
	for _, part := range p.Plans {
		found = append(found, part.whole(first)...)
	}
	return found
}

// firstColumns are the first columns of all indexes of the schema.
func firstColumns(t *testing.T, conn *pgxpool.Conn) map[string]string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT c.relname, pg_get_indexdef(i.indexrelid, 1, true)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = current_schema()::regnamespace`)
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]string{}
	var index, column string
	if _, err := pgx.ForEachRow(rows, []any{&index, &column}, func() error { first[index] = column; return nil }); err != nil {
		t.Fatal(err)
	}
	return first
}

// checkPlans looks at the plans of what a connection has prepared, as they are kept for any arguments, and answers how many
// there are.
func checkPlans(t *testing.T, conn *pgxpool.Conn, statistics string) (seen int) {
	t.Helper()
	type statement struct {
		Name, Text string
		Arguments  int
	}
	rows, err := conn.Query(t.Context(), "SELECT name, statement, coalesce(array_length(parameter_types, 1), 0) FROM pg_prepared_statements")
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
	if err != nil {
		t.Fatal(err)
	}
	first := firstColumns(t, conn)
	if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(t.Context()), "RESET plan_cache_mode") }()
	for _, s := range prepared {
		name, isOurs := strings.CutPrefix(s.Text, "-- name: ")
		name, _, _ = strings.Cut(name, " ")
		if !isOurs || slices.Contains(readsMuch, name) {
			continue
		}
		explain := fmt.Sprintf("EXPLAIN (FORMAT JSON) EXECUTE %q", s.Name)
		if s.Arguments > 0 {
			explain += "(" + strings.TrimSuffix(strings.Repeat("NULL,", s.Arguments), ",") + ")"
		}
		var text []byte
		if err := conn.QueryRow(t.Context(), explain).Scan(&text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plans []struct{ Plan plan }
		if err := json.Unmarshal(text, &plans); err != nil {
			t.Fatal(err)
		}
		seen++
		for _, whole := range plans[0].Plan.whole(first) {
			t.Errorf("statistics of %s: %s reads all of %s, expected only rows found by a key:\n%s", statistics, name, whole, text)
		}
	}
	return seen
}

// readsMuch are the statements that read a table from one end on purpose: the small one of leases, and what is due.
var readsMuch = []string{"AcquireLease", "Claim"}
