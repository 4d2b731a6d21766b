package store

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// fleet stores runs of an organization by statement: one a minute, each third of which has failed after 30 seconds; ids begin with a or b.
func fleet(b *testStore, organization int64, n int) (begin time.Time) {
	b.t.Helper()
	begin = b.clock.Now()
	b.startRun(organization) // whose program they have
	if _, err := b.Pool.Exec(b.t.Context(), `INSERT INTO execution (ref, organization, workflow, state, program, modules, inputs, secrets, labels,
    start_event, created_at, ended_at)
SELECT 'ref-' || $1::bigint || '-' || i, $1, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END || '-' || i, CASE WHEN i % 3 = 0 THEN 'failed' ELSE
    'parked' END,
    (SELECT program FROM execution LIMIT 1), '{}', '{}', '{}', CASE WHEN i % 5 = 0 THEN '{"team": "shop"}'::jsonb ELSE '{}' END, 0,
    $2::timestamptz + i * interval '1 minute',
    CASE WHEN i % 3 = 0 THEN $2::timestamptz + i * interval '1 minute' + interval '30 seconds' END
FROM generate_series(1, $3) AS i`, organization, begin, n); err != nil {
		b.t.Fatal(err)
	}
	return begin
}

// all lists by pages of a size, and counts the pages.
func (b *testStore) all(q control.ListQuery, size int) (ids []string, pages int) {
	b.t.Helper()
	q.Limit = size
	for {
		pages++
		list, rest, err := b.List(b.t.Context(), q)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range list {
			ids = append(ids, e.Workflow)
		}
		switch {
		case len(list) == size:
			q.Before = list[size-1].ID
		case rest != 0:
			q.Before = rest
		default:
			return ids, pages
		}
	}
}

// TestListsMeetTheirConditions compares each condition, and some together, with what a loop finds; counts are as long as lists (issue 18).
func TestListsMeetTheirConditions(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	const n = 200
	begin := fleet(b, 7, n)
	fleet(b, 8, 50)
	if _, err := b.Pool.Exec(t.Context(), `INSERT INTO status (organization, execution, key, value, set_at)
SELECT organization, id, 'step', to_jsonb(id % 4), created_at FROM execution
WHERE workflow LIKE 'a-%' OR workflow LIKE 'b-%'`); err != nil {
		t.Fatal(err)
	}
	var first int64 // the number of run 1
	if err := b.Pool.QueryRow(t.Context(), `SELECT id FROM execution WHERE organization = 7 AND workflow = 'b-1'`).Scan(&first); err != nil {
		t.Fatal(err)
	}
	at := func(minutes float64) time.Time { return begin.Add(time.Duration(minutes * float64(time.Minute))) }
	failed := func(i int) bool { return i%3 == 0 }
	for name, c := range map[string]struct {
		q    control.ListQuery
		want func(i int) bool
	}{
		"started from": {control.ListQuery{StartedFrom: at(190)}, func(i int) bool { return i >= 190 }},
		"started between": {
			control.ListQuery{StartedFrom: at(50), StartedTo: at(60)},
			func(i int) bool { return i >= 50 && i < 60 },
		},
		"started long ago":        {control.ListQuery{StartedTo: begin.AddDate(-1, 0, 0)}, func(int) bool { return false }},
		"started in time to come": {control.ListQuery{StartedFrom: at(10_000)}, func(int) bool { return false }},
		"ended": {
			control.ListQuery{EndedFrom: at(30.5), EndedTo: at(60.5)},
			func(i int) bool { return failed(i) && i >= 30 && i < 60 },
		},
		"prefix": {control.ListQuery{Prefix: "a-1"}, func(i int) bool { return i%2 == 0 && strings.HasPrefix(fmt.Sprint(i), "1") }},
		"like":   {control.ListQuery{Prefix: "%"}, func(int) bool { return false }},
		"part":   {control.ListQuery{Part: "-19"}, func(i int) bool { return strings.HasPrefix(fmt.Sprint(i), "19") }},
		"state":  {control.ListQuery{States: []execution.State{execution.Parked}}, func(i int) bool { return !failed(i) }},
		"failed": {control.ListQuery{States: []execution.State{execution.Failed}, StartedFrom: at(100)}, func(i int) bool { return failed(i) && i >= 100 }},
		"status": {
			control.ListQuery{Status: map[string]string{"step": "2"}},
			func(i int) bool { return (first+int64(i)-1)%4 == 2 },
		},
		"status of another type": {control.ListQuery{Status: map[string]string{"step": `"2"`}}, func(int) bool { return false }},
		"label, part":            {control.ListQuery{Labels: map[string]string{"team": "shop"}, Part: "b-"}, func(i int) bool { return i%5 == 0 && i%2 == 1 }},
		"label, failed": {
			control.ListQuery{Labels: map[string]string{"team": "shop"}, States: []execution.State{execution.Failed}},
			func(i int) bool { return i%5 == 0 && failed(i) },
		},
		"label, status, failed": {
			control.ListQuery{
				Labels: map[string]string{"team": "shop"}, Status: map[string]string{"step": "2"}, States: []execution.State{execution.Failed},
			},
			func(i int) bool { return i%5 == 0 && failed(i) && (first+int64(i)-1)%4 == 2 },
		},
		"label, status": {
			control.ListQuery{Labels: map[string]string{"team": "shop"}, Status: map[string]string{"step": "2"}},
			func(i int) bool { return i%5 == 0 && (first+int64(i)-1)%4 == 2 },
		},
		"status, failed": {
			control.ListQuery{Status: map[string]string{"step": "2"}, States: []execution.State{execution.Failed}},
			func(i int) bool { return failed(i) && (first+int64(i)-1)%4 == 2 },
		},
		"status, terminated": {
			control.ListQuery{Status: map[string]string{"step": "2"}, States: []execution.State{execution.Terminated}},
			func(int) bool { return false },
		},
		"label, ended": {
			control.ListQuery{Labels: map[string]string{"team": "shop"}, EndedTo: at(100)},
			func(i int) bool { return i%5 == 0 && failed(i) && i < 100 },
		},
	} {
		var want []string
		for i := n; i > 0; i-- {
			if c.want(i) {
				want = append(want, fmt.Sprintf("%c-%d", "ab"[i%2], i))
			}
		}
		c.q.Organization = 7
		found, _ := b.all(c.q, 7)
		found = without(found)
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		whole, _ := b.all(c.q, 1000) // with the run that was started for its program
		if count, atLeast, err := b.Count(t.Context(), c.q, 1000); err != nil || atLeast || count != int64(len(whole)) {
			t.Errorf("%s: counted %d (at least: %t), error %v, expected %d", name, count, atLeast, err, len(whole))
		}
		if len(whole) > 3 {
			if count, atLeast, err := b.Count(t.Context(), c.q, 3); err != nil || !atLeast || count != 3 {
				t.Errorf("%s: counted %d (at least: %t), error %v, expected at least 3", name, count, atLeast, err)
			}
		}
	}
}

// without leaves out the run that fleet starts for its program.
func without(ids []string) (kept []string) {
	for _, id := range ids {
		if strings.HasPrefix(id, "a-") || strings.HasPrefix(id, "b-") {
			kept = append(kept, id)
		}
	}
	return kept
}

// TestAPageReadsNoMoreThanItsBudget searches 45,000 runs for the first one; each page ends after 20,000. Bounds of time are found by
// bisection, so that they need one page.
func TestAPageReadsNoMoreThanItsBudget(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	begin := fleet(b, 7, 2*listBudget+listBudget/4)
	if found, pages := b.all(control.ListQuery{Organization: 7, Part: "b-1", EndedTo: begin.Add(10 * time.Minute)}, 10); len(found) != 0 || pages != 1 {
		t.Errorf("found %v in %d pages, expected none in one: what ended early started early", found, pages)
	}
	if found, pages := b.all(control.ListQuery{Organization: 7, Part: "a-2", StartedTo: begin.Add(3 * time.Minute)}, 10); len(found) != 1 || pages != 1 {
		t.Errorf("found %v in %d pages, expected one in one", found, pages)
	}
	if found, pages := b.all(control.ListQuery{Organization: 7, Prefix: "a-2", Part: "a-2", States: []execution.State{execution.Running}}, 10); pages != 3 {
		t.Errorf("found %v in %d pages, expected 3", found, pages)
	}
	if n, atLeast, err := b.Count(t.Context(), control.ListQuery{Organization: 7}, 10_000); err != nil || !atLeast || n != 10_000 {
		t.Errorf("counted %d (at least: %t), error %v, expected at least 10,000", n, atLeast, err)
	}
}

// TestLabelsBelongToTheirRun: a run's labels end with it, and runs that were stored before there was a table of labels are listed by
// theirs.
func TestLabelsBelongToTheirRun(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	fleet(b, 7, 20)
	labels := func() (n int) {
		t.Helper()
		if err := b.Pool.QueryRow(t.Context(), `SELECT count(*) FROM execution_label WHERE key = 'team'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := labels(); n != 4 {
		t.Fatalf("found %d labels, expected 4", n)
	}
	if _, err := b.Pool.Exec(t.Context(), `DELETE FROM execution_label`); err != nil {
		t.Fatal(err)
	}
	migration, err := fs.ReadFile(Migrations(), "1201_labels_of_before.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, _, _ := strings.Cut(string(migration), "-- +goose Down")
	for range 2 { // after a crash before it is noted, it is repeated
		if _, err := b.Pool.Exec(t.Context(), up); err != nil {
			t.Fatal(err)
		}
	}
	if found, _ := b.all(control.ListQuery{Organization: 7, Labels: map[string]string{"team": "shop"}}, 3); len(found) != 4 {
		t.Errorf("found %v, expected 4 runs", found)
	}
	if _, err := b.Pool.Exec(t.Context(), `DELETE FROM execution WHERE workflow LIKE 'a-1%' OR workflow LIKE 'b-1%'`); err != nil {
		t.Fatal(err)
	}
	if n := labels(); n != 2 { // of runs 5 and 20
		t.Errorf("found %d labels, expected 2", n)
	}
}
