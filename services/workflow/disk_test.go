package workflow_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// fullDisk is a disk of PostgreSQL that has no room for a table, as far as the server's answers go: every statement that changes
// the table is refused with 53100, disk_full, in the middle of its transaction, or else the commit is. How often is counted by a
// sequence, which no rollback takes back.
const fullDisk = `
CREATE SEQUENCE refusals;
CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('refusals');
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$;`

// busy writes to every table that a turn, an event or a timer can write to, until it receives a message to stop.
const busy = `
def work(name):
    n = 0
    while True:
        n += 1
        done = run("act", {"name": name, "n": n})
        if done.stop:
            return n
        run("emit", {"type": "com.gitlab.cd.rollout.started", "data": {"rollout_id": n, "name": name}})
        wait_for_event("com.gitlab.cd.rollout.started", filter = {"name": name, "rollout_id": n}, timeout = 60)
        sleep(seconds = 0.001)

print(gather([spawn(work, "a"), spawn(work, "b")]))
`

// TestAFullDiskLeavesNothingHalfDone fills the disk for one table after the other while a run is at work, in the middle of
// transactions and at their commits (C19). What was being done is done again once there is room: the history has no gap, no operation
// comes twice, the outbox has what the history has, and meanwhile nobody tries in a tight loop.
func TestAFullDiskLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := e.store.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(fullDisk)
	var stop atomic.Bool
	const poll = 20 * time.Millisecond // newEngines' own
	e.runWith("one", e.store, func(_ context.Context, _ activity.Call) (any, error) {
		return map[string]any{"stop": stop.Load()}, nil
	}, 1_000_000)
	e.start(busy)

	for _, when := range []string{
		"BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH STATEMENT",
		"AFTER INSERT OR UPDATE OR DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW",
	} {
		for _, table := range []string{"entry", "execution", "timer", "event", "event_key", "wait", "delivery", "outbox", "runnable"} {
			name := "TRIGGER"
			if when[0] == 'A' {
				name = "CONSTRAINT TRIGGER"
			}
			before := refusals(t, e)
			began := clock.System().Now()
			exec(fmt.Sprintf("CREATE "+name+" no_room "+when+" EXECUTE FUNCTION disk_full()", pgx.Identifier{table}.Sanitize()))
			deadline := began.Add(within)
			for refusals(t, e) < before+3 {
				consistent(t, e)
				if clock.System().Now().After(deadline) || clock.Sleep(t.Context(), clock.System(), poll) != nil {
					t.Fatalf("%s: within %s the full disk was met %d times, expected 3", table, within, refusals(t, e)-before)
				}
			}
			consistent(t, e)
			exec("DROP TRIGGER no_room ON " + pgx.Identifier{table}.Sanitize())
			// A loop that has met trouble waits for a poll before it tries again: the run's driver, the claim loop and the timer loop.
			tried, lasted := refusals(t, e)-before, clock.System().Now().Sub(began)
			if most := 4 * (int64(lasted/poll) + 2); tried > most {
				t.Errorf("%s: %d attempts within %s, expected at most %d", table, tried, lasted, most)
			}
		}
	}
	stop.Store(true)
	w := e.await(execution.Completed)
	consistent(t, e)
	var operations, different, gaps int64
	err := e.store.Pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT (branch, op)), max(seq) - count(*) FROM entry WHERE execution = $1`, w.ID).Scan(&operations, &different, &gaps)
	if err != nil || operations != different || gaps != 0 {
		t.Errorf("%d entries of %d operations with %d gaps, error %v", operations, different, gaps, err)
	}
}

func refusals(t *testing.T, e *engines) (n int64) {
	t.Helper()
	if err := e.store.Pool.QueryRow(t.Context(), `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refusals`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// consistent looks at what one transaction has written in several tables, at one moment: the end of the history, and what left.
func consistent(t *testing.T, e *engines) {
	t.Helper()
	var last, end, emitted, left int64
	var state string
	err := e.store.Pool.QueryRow(t.Context(), `
SELECT x.last_seq, x.state, e.seq,
    (SELECT count(*) FROM entry WHERE execution = x.id AND kind = 'emit'), (SELECT count(*) FROM outbox WHERE event_id LIKE x.ref || '/%.%')
FROM execution x CROSS JOIN LATERAL (SELECT coalesce(max(seq), 0) AS seq FROM entry WHERE execution = x.id) AS e WHERE x.workflow = 'w'`).Scan(&last, &state, &end, &emitted, &left)
	if err != nil {
		t.Fatal(err)
	}
	// While it runs, its steps are in the history alone.
	if last > end || (state != execution.Running.String() && last != end) || emitted != left {
		t.Fatalf("half done: the history ends with %d and should with %d; %d events were recorded, %d left", end, last, emitted, left)
	}
}
