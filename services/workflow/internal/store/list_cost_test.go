package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// visit is a node of an executed plan, as EXPLAIN ANALYZE prints it. Rows are those of one loop.
type visit struct {
	Relation        string  `json:"Relation Name"`
	Index           string  `json:"Index Name"`
	Rows            float64 `json:"Actual Rows"`
	Loops           float64 `json:"Actual Loops"`
	RemovedByFilter float64 `json:"Rows Removed by Filter"`
	RemovedByCheck  float64 `json:"Rows Removed by Index Recheck"`
	RemovedByJoin   float64 `json:"Rows Removed by Join Filter"`
	Plans           []visit `json:"Plans"`
}

// visited is how many rows of tables a plan has read, also those that it then left out, and how often it has looked.
func (v visit) visited() (rows float64) {
	if v.Relation != "" || v.Index != "" {
		rows = v.Loops * (1 + v.Rows + v.RemovedByFilter + v.RemovedByCheck)
	}
	rows += v.Loops * v.RemovedByJoin
	for _, below := range v.Plans {
		rows += below.visited()
	}
	return rows
}

// listener takes down the statements of lists.
type listener struct {
	mu  sync.Mutex
	all []pgx.TraceQueryStartData
}

func (l *listener) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasPrefix(d.SQL, "-- name: ") {
		l.all = append(l.all, d)
	}
	return ctx
}

func (*listener) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (l *listener) take() []pgx.TraceQueryStartData {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// crowd is a store with many runs of two organizations: half of them have one label and report one status value, a few have another one.
type crowd struct {
	*testStore
	listener *listener
}

func newCrowd(t *testing.T, n int) crowd {
	t.Helper()
	_, config := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()}, pgtest.Migration{Name: "workflow", FS: Migrations()})
	parsed, err := pgxpool.ParseConfig(config.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := crowd{listener: new(listener)}
	parsed.ConnConfig.Tracer = c.listener
	for name, value := range Settings() {
		parsed.ConnConfig.RuntimeParams[name] = value
	}
	parsed.ConnConfig.RuntimeParams["search_path"] = config.Schema
	pool, err := pgxpool.NewWithConfig(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c.testStore = newTestStoreOn(t, pool, clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)))
	c.startRun(7)
	for _, statement := range []string{
		`INSERT INTO execution (ref, organization, workflow, state, program, modules, inputs, secrets, labels, start_event, created_at, ended_at)
SELECT 'ref-' || o || '-' || i, o, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END || '-' || i,
    CASE WHEN i % 3 = 0 THEN 'failed' ELSE 'parked' END,
    CASE WHEN i % 2 = 0 THEN (SELECT program FROM execution LIMIT 1) ELSE '\x00' END, '{}', '{}', '{}',
    CASE WHEN i % 2 = 0 THEN '{"team": "shop"}'::jsonb ELSE '{}' END || CASE WHEN i % 500 = 0 AND i <= 5000 THEN '{"ticket": "seven"}'::jsonb ELSE '{}' END,
    0, now(), CASE WHEN i % 3 = 0 THEN now() END
FROM generate_series(1, $1::int) AS i, unnest(ARRAY[7, 8]::bigint[]) AS o`,
		`INSERT INTO status (organization, execution, key, value, set_at)
SELECT organization, id, s.key, s.value::jsonb, created_at
FROM execution CROSS JOIN (VALUES ('step', '1'), ('place', '"here"')) AS s(key, value)
WHERE $1::int > 0 AND (s.key = 'step' AND workflow LIKE 'a-%' OR s.key = 'place' AND labels ? 'ticket')`,
	} {
		if _, err := pool.Exec(t.Context(), statement, n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE execution, execution_label, status, entry, generation"); err != nil {
		t.Fatal(err)
	}
	return c
}

// cost is how many rows the statements of a page visit, or of a count.
func (c crowd) cost(ask func() error) (rows float64) {
	c.t.Helper()
	c.listener.take()
	if err := ask(); err != nil {
		c.t.Fatal(err)
	}
	statements := c.listener.take()
	if len(statements) == 0 {
		c.t.Fatal("no statement was seen")
	}
	for _, s := range statements {
		rows += c.explain(s)
	}
	return rows
}

// explain carries a statement out as the service does, planned for any values.
func (c crowd) explain(s pgx.TraceQueryStartData) float64 {
	c.t.Helper()
	var found []struct{ Plan visit }
	err := pgx.BeginFunc(c.t.Context(), c.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(c.t.Context(), "PREPARE explained AS "+s.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		places := make([]string, len(s.Args))
		args := []any{pgx.QueryExecModeSimpleProtocol}
		for i, arg := range s.Args {
			places[i] = fmt.Sprintf("$%d", i+1)
			if text, is := arg.(json.RawMessage); is {
				arg = string(text)
			}
			args = append(args, arg)
		}
		var text []byte
		statement := "EXPLAIN (ANALYZE, TIMING off, FORMAT JSON) EXECUTE explained (" + strings.Join(places, ", ") + ")"
		if err := tx.QueryRow(c.t.Context(), statement, args...).Scan(&text); err != nil {
			return err
		}
		if _, err := tx.Exec(c.t.Context(), "DEALLOCATE explained", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		return json.Unmarshal(text, &found)
	})
	if err != nil || len(found) != 1 {
		c.t.Fatalf("explain %.60s: %d plans, %v", s.SQL, len(found), err)
	}
	return found[0].Plan.visited()
}

// TestAPageOfRunsCostsWhatIsOnIt asks for pages and counts by each filter where there are many runs, and where there are twice as many, and
// looks how many rows are visited. It does not grow with the runs outside of the page: a filter that has an index reads what is on the
// page, also where few runs bear what is asked for; one that leaves many out reads as far as the budget (issue 18).
func TestAPageOfRunsCostsWhatIsOnIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes many rows")
	}
	const (
		// A page visits the run, its last entry, its generation, and what it is listed by; a scan a few rows for each one that it leaves out.
		page, onPage, leftOut = 50, 15, 5
		ratio, slack          = 1.1, 100
	)
	small, large := newCrowd(t, 45_000), newCrowd(t, 90_000)
	for name, f := range map[string]struct {
		q control.ListQuery
		// few is set if the page has all that there are, and scans if it reads as far as the budget.
		few, scans bool
	}{
		"everything":              {q: control.ListQuery{}},
		"parked":                  {q: control.ListQuery{States: []execution.State{execution.Parked}}},
		"failed":                  {q: control.ListQuery{States: []execution.State{execution.Failed}}},
		"running, which is one":   {q: control.ListQuery{States: []execution.State{execution.Running}}, scans: true},
		"terminated, which none":  {q: control.ListQuery{States: []execution.State{execution.Terminated}}, scans: true},
		"a program of half":       {q: control.ListQuery{Program: []byte{0}}},
		"a program of none":       {q: control.ListQuery{Program: []byte{1}}, scans: true},
		"a label of half":         {q: control.ListQuery{Labels: map[string]string{"team": "shop"}}},
		"a label of a few":        {q: control.ListQuery{Labels: map[string]string{"ticket": "seven"}}, few: true},
		"a label of none":         {q: control.ListQuery{Labels: map[string]string{"ticket": "eight"}}, few: true},
		"labels of half and few":  {q: control.ListQuery{Labels: map[string]string{"team": "shop", "ticket": "seven"}}, few: true},
		"a label, text of none":   {q: control.ListQuery{Labels: map[string]string{"team": "shop"}, Part: "nobody"}, scans: true},
		"a value of half":         {q: control.ListQuery{Status: map[string]string{"step": "1"}}},
		"a value of a few":        {q: control.ListQuery{Status: map[string]string{"place": `"here"`}}, few: true},
		"a value of none":         {q: control.ListQuery{Status: map[string]string{"step": "2"}}, few: true},
		"values of half and few":  {q: control.ListQuery{Status: map[string]string{"place": `"here"`, "step": "1"}}, few: true},
		"a value, text of none":   {q: control.ListQuery{Status: map[string]string{"step": "1"}, Part: "nobody"}, scans: true},
		"text of half":            {q: control.ListQuery{Prefix: "a-"}},
		"text of none":            {q: control.ListQuery{Part: "nobody"}, scans: true},
		"a label and a value":     {q: control.ListQuery{Labels: map[string]string{"ticket": "seven"}, Status: map[string]string{"step": "1"}}, few: true},
		"a label of half, failed": {q: control.ListQuery{Labels: map[string]string{"team": "shop"}, States: []execution.State{execution.Failed}}},
	} {
		f.q.Organization, f.q.Limit = 7, page
		var found [2]int
		var list, count [2]float64
		for i, c := range []crowd{small, large} {
			list[i] = c.cost(func() error {
				rows, _, err := c.List(t.Context(), f.q)
				found[i] = len(rows)
				return err
			})
			count[i] = c.cost(func() error { _, _, err := c.Count(t.Context(), f.q, page); return err })
		}
		most := float64(onPage*page + slack)
		switch {
		case f.scans:
			most = leftOut*listBudget + slack
		case len(f.q.Labels)+len(f.q.Status) > 0:
			most += 1000 * float64(len(f.q.Labels)+len(f.q.Status)+len(f.q.States)) // to find out which of several is the rarest
		}
		if !f.scans && !f.few && found[0] != page || f.few && found[0] > page/2 {
			t.Errorf("%s: found %d runs", name, found[0])
		}
		if found[0] != found[1] && !f.scans {
			t.Errorf("%s: found %d and %d runs", name, found[0], found[1])
		}
		if list[0] > most || list[1] > most || list[1] > list[0]*ratio+slack && !f.scans {
			t.Errorf("%s: a page of %d visits %.0f rows, and %.0f where there are twice as many; expected at most %.0f", name, found[0], list[0],
				list[1], most)
		}
		if grows := count[1] > count[0]*ratio+slack; grows && !f.scans || count[1] > leftOut*countBudget {
			t.Errorf("%s: a count up to %d visits %.0f rows, and %.0f where there are twice as many", name, page, count[0], count[1])
		}
		t.Logf("%s: %d runs, %.0f and %.0f rows; counted by %.0f and %.0f", name, found[0], list[0], list[1], count[0], count[1])
	}
}
