package workflow_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/retention"
	limitstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/limits"
)

// wholeOperation is something that one transaction does to a run. It is done again when it has failed, and when nobody knows whether it
// has.
type wholeOperation struct {
	// tables is how many it writes at least, so that the test would notice if it wrote none.
	tables int
	// prepare makes what it needs, for a run of this id.
	prepare func(workflow string)
	do      func(workflow string) error
	// holds says what is wrong after it was done, and done again.
	holds func(workflow string) error
}

// failed has a run that is stored be one that has failed after two steps, the second of which made a channel.
func (tt *timetable) failed(workflow string) {
	tt.t.Helper()
	tt.exec(`WITH failed AS (
	UPDATE execution SET state = 'failed', ended_at = $2, owner = NULL, owner_epoch = NULL, last_seq = 2 WHERE workflow = $1
	RETURNING id, organization
), step AS (
	INSERT INTO entry (execution, seq, branch, op, kind, name, hash, value, recorded_at)
	SELECT failed.id, s.seq, 0, s.seq - 1, s.kind, s.name, 0, s.value::json, $2::timestamptz
	FROM failed CROSS JOIN (VALUES (1, 'status', 'step', '1'), (2, 'sleep', '', 'null')) AS s(seq, kind, name, value)
) DELETE FROM runnable USING failed WHERE execution = failed.id`, workflow, tt.clock.Now())
}

func (tt *timetable) exec(statement string, args ...any) {
	tt.t.Helper()
	if _, err := tt.pool.Exec(tt.t.Context(), statement, args...); err != nil {
		tt.t.Fatal(err)
	}
}

// tables are those of the schema.
func (tt *timetable) tables() (all []string) {
	tt.t.Helper()
	rows, err := tt.pool.Query(tt.t.Context(), `SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
ORDER BY relname`)
	if err != nil {
		tt.t.Fatal(err)
	}
	if all, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		tt.t.Fatal(err)
	}
	return all
}

// everything is the content of all tables.
func (tt *timetable) everything() map[string]string {
	tt.t.Helper()
	content := map[string]string{}
	for _, table := range tt.tables() {
		var text string
		name := pgx.Identifier{table}.Sanitize()
		if err := tt.pool.QueryRow(tt.t.Context(), `SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, ' ' ORDER BY t::text)), '') FROM `+name+` AS t`).Scan(&text); err != nil {
			tt.t.Fatal(err)
		}
		content[table] = text
	}
	return content
}

// written are the tables that an operation changes.
func (tt *timetable) written(o wholeOperation) (tables []string) {
	tt.t.Helper()
	o.prepare("first")
	before := tt.everything()
	if err := o.do("first"); err != nil {
		tt.t.Fatal(err)
	}
	after := tt.everything()
	for _, table := range tt.tables() {
		if before[table] != after[table] {
			tables = append(tables, table)
		}
	}
	return tables
}

// wholeOperations are those of the table below, over a database of their own.
func (tt *timetable) wholeOperations() map[string]wholeOperation {
	operator := control.NewOperator(tt.service, tt.runs, control.NewSubscriptions(tt.runs, tt.clock, bustest.Log(tt.t)))
	count := func(want int, statement string, args ...any) error {
		var found int
		if err := tt.pool.QueryRow(tt.t.Context(), statement, args...).Scan(&found); err != nil || found != want {
			return fmt.Errorf("%s: found %d, expected %d, error %w", statement, found, want, err)
		}
		return nil
	}
	store := limitstore.New(tt.pool)
	large := func(workflow string) error {
		_, err := tt.service.Start(tt.t.Context(), execution.Start{
			Organization: organization, Workflow: workflow, Program: program.Program{Source: []byte("sleep(seconds = 60) # " + workflow)},
			Inputs: []byte(`{"text": "` + strings.Repeat("x", 100_000) + workflow + `"}`), Labels: map[string]string{"team": "shop"},
		})
		return err
	}
	remove := func(workflow string) error {
		var id int64
		if err := tt.pool.QueryRow(tt.t.Context(), `SELECT coalesce((SELECT id FROM execution WHERE workflow = $1), 0)`, workflow).Scan(&id); err != nil {
			return err
		}
		_, err := store.Delete(tt.t.Context(), []int64{id}, tt.clock.Now().Add(time.Hour))
		return err
	}
	must := func(err error) {
		if err != nil {
			tt.t.Fatal(err)
		}
	}
	const payloads = `SELECT count(*) FROM payload WHERE convert_from(data, 'UTF8') LIKE '%x' || $1 || '"%'`
	return map[string]wholeOperation{
		"a reset": {
			tables: 5, prepare: func(workflow string) { tt.run(organization, workflow, "old"); tt.failed(workflow) },
			do: func(workflow string) error {
				_, _, err := operator.Reset(tt.t.Context(), control.ResetRequest{
					Organization: organization, Workflow: workflow, New: workflow + "-new", To: 2,
				})
				return err
			},
			holds: func(workflow string) error {
				return count(2, `SELECT count(*) + (SELECT count(*) FROM status s WHERE s.execution = min(e.execution)) FROM entry e
JOIN execution x ON x.id = e.execution WHERE x.workflow = $1 AND x.state = 'running'`, workflow+"-new")
			},
		},
		"another program": {
			tables: 3, prepare: func(workflow string) {
				tt.run(organization, workflow, "old")
				tt.exec(`WITH parked AS (UPDATE execution SET state = 'parked', owner = NULL, owner_epoch = NULL WHERE workflow = $1 RETURNING id)
DELETE FROM runnable USING parked WHERE execution = parked.id`, workflow)
			},
			do: func(workflow string) error {
				_, err := operator.ChangeProgram(tt.t.Context(), control.ChangeRequest{
					Organization: organization, Workflow: workflow,
					Program: program.Program{Source: []byte("sleep(seconds = 60)\nprint(\"" + workflow + "\")")},
				})
				return err
			},
			holds: func(workflow string) error {
				return count(1, `SELECT count(*) FROM program_change c JOIN execution e ON e.id = c.execution WHERE e.workflow = $1`, workflow)
			},
		},
		"a large value": {
			tables: 5, prepare: func(string) {}, do: large,
			holds: func(workflow string) error { return count(1, payloads, workflow) },
		},
		"a deletion": {
			tables: 4, prepare: func(workflow string) { must(large(workflow)); tt.failed(workflow) }, do: remove,
			holds: func(workflow string) error {
				return count(0, `SELECT (SELECT count(*) FROM execution WHERE workflow = $1) + (SELECT count(*) FROM payload_use u WHERE NOT EXISTS (
SELECT FROM execution e WHERE e.id = u.owner)) + (SELECT count(*) FROM execution_label l WHERE NOT EXISTS (
SELECT FROM execution e WHERE e.id = l.execution))
+ (SELECT count(*) FROM entry n WHERE NOT EXISTS (SELECT FROM execution e WHERE e.id = n.execution))`, workflow)
			},
		},
		"a payload that nothing refers to": {
			tables: 1, prepare: func(workflow string) { must(large(workflow)); tt.failed(workflow); must(remove(workflow)) },
			do:    func(string) error { return tt.runs.Forget(tt.t.Context(), tt.clock.Now()) },
			holds: func(workflow string) error { return count(0, payloads, workflow) },
		},
	}
}

// TestAnOperationIsWholeOrNothing has the database refuse an operation in the middle, at each table that it changes, and at its commit: all
// is as it was, and done again it is done. A caller that does not know does it once more, which changes nothing (C26) (C27) (C28).
func TestAnOperationIsWholeOrNothing(t *testing.T) { // issue 18
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys((&timetable{t: t}).wholeOperations())) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt := newTimetable(t)
			if _, err := tt.runs.Acquire(t.Context(), "one", tt.clock.Now(), time.Hour); err != nil { // a process that keeps large values by digest
				t.Fatal(err)
			}
			o := tt.wholeOperations()[name]
			tt.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'disk_full'; END $$`)
			refused := 0
			for n, table := range tt.written(o) {
				for m, trigger := range []string{
					"CREATE TRIGGER refused BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
					"CREATE CONSTRAINT TRIGGER refused AFTER INSERT OR UPDATE OR DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
				} {
					workflow, on := fmt.Sprintf("w-%d-%d", n, m), pgx.Identifier{table}.Sanitize()
					o.prepare(workflow)
					tt.exec(fmt.Sprintf(trigger, on))
					before := tt.everything()
					if err := o.do(workflow); err != nil {
						refused++
						if diff := cmp.Diff(before, tt.everything()); diff != "" {
							t.Errorf("refused at %s, and half done (-before +after):\n%s", table, diff)
						}
					}
					tt.exec("DROP TRIGGER refused ON " + on)
					for range 2 {
						if err := o.do(workflow); err != nil {
							t.Errorf("done again after %s: %v", table, err)
						}
						if err := o.holds(workflow); err != nil {
							t.Errorf("after %s: %v", table, err)
						}
					}
				}
			}
			if refused < 2*o.tables {
				t.Errorf("the operation was refused %d times, expected at least %d", refused, 2*o.tables)
			}
			t.Logf("refused %d times", refused)
		})
	}
}

// doomedRetention is the store of a process that deletes runs and may die, and doomedShelf its archive.
type doomedRetention struct {
	retention.Store
	life *doomed
}

func (s doomedRetention) Runs(
	ctx context.Context, organization, after int64, before time.Time, most int,
) (runs []retention.Run, err error) {
	err = s.life.do(func() (err error) { runs, err = s.Store.Runs(ctx, organization, after, before, most); return err })
	return runs, err
}

func (s doomedRetention) Delete(ctx context.Context, runs []int64, before time.Time) (n int64, err error) {
	err = s.life.do(func() (err error) { n, err = s.Store.Delete(ctx, runs, before); return err })
	return n, err
}

// shelf keeps runs whole, each under its number.
type shelf struct {
	operator *control.Operator
	mu       sync.Mutex
	kept     map[string]int
}

type doomedShelf struct {
	*shelf
	life *doomed
}

func (s doomedShelf) Keep(ctx context.Context, organization int64, run retention.Run) error {
	return s.life.do(func() error {
		x, err := s.operator.ForArchive(ctx, organization, run.ID, run.Workflow)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept[run.Workflow] = len(x.Loaded.History)
		return nil
	})
}

// TestKilledAtEveryStepOfADeletion kills a process before and after it reads the runs that are due, keeps each in the archive and deletes
// them. At no moment a run is neither in the database nor in the archive; another process does the rest (C28).
func TestKilledAtEveryStepOfADeletion(t *testing.T) { // issue 18
	t.Parallel()
	tt := newTimetable(t)
	archive := &shelf{
		operator: control.NewOperator(tt.service, tt.runs, control.NewSubscriptions(tt.runs, tt.clock, bustest.Log(t))), kept: map[string]int{},
	}
	process := func(life *doomed) *retention.Retention {
		return retention.New(retention.Deps{
			Store: doomedRetention{limitstore.New(tt.pool), life}, Archive: doomedShelf{archive, life}, Clock: tt.clock, Log: bustest.Log(t),
		})
	}
	if err := process(&doomed{}).Set(t.Context(), retention.Change{
		Organization: organization, Rule: retention.Rule{Keep: time.Hour}, By: "alice", Reason: "space",
	}); err != nil {
		t.Fatal(err)
	}
	lost := func(names []string) (present int) {
		for _, name := range names {
			_, err := tt.runs.Get(t.Context(), organization, name)
			archive.mu.Lock()
			entries, kept := archive.kept[name]
			archive.mu.Unlock()
			if err == nil {
				present++
			} else if !kept || entries != 2 {
				t.Errorf("%s is neither in the database nor in the archive as a whole: %v, %d entries", name, err, entries)
			}
		}
		return present
	}
	undisturbed := 0
	for n := 0; n <= 2*undisturbed; n++ {
		var names []string
		for i := range 3 {
			names = append(names, fmt.Sprintf("due-%d-%d", n, i))
			tt.run(organization, names[i], "old")
			tt.failed(names[i])
		}
		tt.clock.Advance(2 * time.Hour)
		young := fmt.Sprintf("young-%d", n)
		tt.run(organization, young, "old")
		tt.failed(young)
		life := &doomed{at: (n + 1) / 2, applied: n%2 == 0}
		_, err := process(life).Apply(t.Context())
		if n == 0 {
			undisturbed = life.n
		} else if err == nil || !life.dead {
			t.Errorf("the process was not killed at step %d", life.at)
		}
		lost(names)
		if _, err := process(&doomed{}).Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		if present := lost(names); present != 0 {
			t.Errorf("step %d: %d runs are left that are due", life.at, present)
		}
		if lost([]string{young}) != 1 {
			t.Errorf("step %d: a run was deleted that is not due", life.at)
		}
		tt.exec(`DELETE FROM execution WHERE workflow = $1`, young)
	}
	if undisturbed != 5 { // one look, three runs, and their deletion
		t.Errorf("found %d steps, expected 5", undisturbed)
	}
}
