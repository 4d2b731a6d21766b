package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
)

// waitProgram parks until its event comes; the last thing that it does ends the run.
const waitProgram = "wait_for_event(\"com.example.go\", filter = {\"number\": number})\n"

// send delivers the event that one parked workflow waits for.
func send(ctx context.Context, c autoflowv1.AutoFlowClient, id string, number int) error {
	matched, err := deliver(ctx, c, id, number)
	if err == nil && matched != 1 {
		err = fmt.Errorf("event %s matched %d waits, expected 1", id, matched)
	}
	return err
}

// deliver sends an event, and returns how many workflows have waited for it.
func deliver(ctx context.Context, c autoflowv1.AutoFlowClient, id string, number int) (int32, error) {
	resp, err := c.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
		`{"specversion":"1.0","id":%q,"source":"/bench","type":"com.example.go","organizationid":"%d","data":{"number":%d}}`,
		id, organization, number)})
	return resp.GetMatched(), err
}

// hot and evicted are the two ways a parked run is found: in memory, or in the database alone.
func hot(*workflow.Config) {}

func evicted(c *workflow.Config) { c.CacheBytes = -1 }

// wakes measures from the sending of an event to the caller's knowledge that the run has ended by it, and to the moment at which the
// program continued: that is the time of the wait's entry in the history, by the same machine's clock.
func wakes(name string) func(ctx context.Context, w *world, r *report) error {
	return func(ctx context.Context, w *world, r *report) error {
		for _, c := range []struct{ clients, n int }{{1, 300}, {64, 3000}} {
			offset := c.clients * 1_000_000
			n := w.scaled(c.n)
			id := func(i int) string { return fmt.Sprintf("wake-%d", offset+i) }
			_, _, err := w.drive(ctx, 32, n, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
				return 0, begin(ctx, client, id(i), waitProgram, fmt.Sprintf(`{"number": %d}`, offset+i))
			})
			if err != nil {
				return err
			}
			if err := w.settled(ctx); err != nil {
				return err
			}
			sent := make([]time.Time, n)
			m := row{Scenario: "event-to-end, " + name, Clients: c.clients, N: n, Unit: "events"}
			err = measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
				sent[i] = now()
				if err := send(ctx, client, id(i), offset+i); err != nil {
					return 0, err
				}
				err := finish(ctx, client, id(i))
				return now().Sub(sent[i]), err
			})
			if err != nil {
				return err
			}
			resumed := make(latencies, n)
			for i := range sent {
				var at time.Time
				err := w.db.QueryRow(ctx, `SELECT n.recorded_at FROM workflow.entry n JOIN workflow.execution x ON x.id = n.execution
WHERE x.organization = $1 AND x.workflow = $2 AND n.kind = 'wait'`, organization, id(i)).Scan(&at)
				if err != nil {
					return fmt.Errorf("when workflow %s continued: %w", id(i), err)
				}
				resumed[i] = at.Sub(sent[i])
			}
			r.add(row{
				Scenario: "event-to-resumed, " + name, Engine: "lockstep", Clients: c.clients, N: n, Unit: "events", P50: resumed.at(0.5),
				P99: resumed.at(0.99),
			})
		}
		return nil
	}
}

// settled is drained, and the statistics as after a minute.
func (w *world) settled(ctx context.Context) error {
	if err := w.drained(ctx); err != nil {
		return err
	}
	_, err := w.db.Exec(ctx, "ANALYZE")
	return err
}

// parkedSweep is B4: how much parked runs cost, and whether an event costs more beside more of them. They are copies, made in
// the database, of one that was parked through the API; half of them have an event to wait for, all a timer.
func parkedSweep(ctx context.Context, w *world, r *report) error {
	client, err := w.client()
	if err != nil {
		return err
	}
	if err := begin(ctx, client, "template", waitProgram, `{"number": -1}`); err != nil {
		return err
	}
	if err := w.drained(ctx); err != nil {
		return err
	}
	there, err := w.copies(ctx)
	if err != nil {
		return err
	}
	if there > 1_000 {
		// What was kept of an earlier run is compared with few parked runs, as it was then.
		if err := w.beside(ctx, r, 1_000); err != nil {
			return err
		}
	}
	for _, parked := range []int{1_000, 10_000, 100_000, 1_000_000} {
		if parked > w.options.parkedMost() {
			break
		}
		if parked < there {
			continue
		}
		if err := w.copyParked(ctx, there, parked); err != nil {
			return err
		}
		there = parked
		if err := w.sweep(ctx, r, parked); err != nil {
			return err
		}
	}
	return nil
}

// copies counts the parked runs that exist.
func (w *world) copies(ctx context.Context) (n int, err error) {
	err = w.db.QueryRow(ctx, "SELECT count(*) FROM workflow.execution WHERE workflow LIKE 'copy-%'").Scan(&n)
	return n, err
}

// beside sweeps once over an installation of its own.
func (w *world) beside(ctx context.Context, r *report, parked int) error {
	dir, err := probe.Folder()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing runs in it any more
	o := w.options
	o.most, o.data = parked, "" // as many events as beside the others
	few, err := newWorld(ctx, w.log, filepath.Join(dir, "few"), o, nil)
	if err != nil {
		return err
	}
	return errors.Join(parkedSweep(ctx, few, r), few.close(ctx))
}

// copyParked makes parked runs numbered from to below to. Their handles are in the order of time, as the service's are.
func (w *world) copyParked(ctx context.Context, from, to int) error {
	if from >= to {
		return nil // they were kept, and the statistics about them
	}
	for _, sql := range []string{
		`INSERT INTO workflow.execution (ref, organization, workflow, state, program, modules, inputs, secrets, labels, start_event, created_at)
SELECT 'ff98c0de-' || lpad(to_hex(n / 4096), 4, '0') || '-7' || lpad(to_hex(n % 4096), 3, '0')
|| substr(gen_random_uuid()::text, 19), organization, 'copy-' || n, 'parked', program, modules, inputs, secrets, labels,
    start_event, created_at
FROM workflow.execution, generate_series($1::int, $2::int - 1) n WHERE workflow = 'template'`,
		`INSERT INTO workflow.timer (execution, branch, op, due)
SELECT id, 0, 0, now() + interval '20 days' FROM workflow.execution WHERE workflow LIKE 'copy-%' AND substr(workflow, 6)::int BETWEEN $1
AND $2 - 1`,
		`INSERT INTO workflow.wait (execution, branch, op, key, shape, type, filter, created_at)
SELECT e.id, 0, 0, decode(md5(e.id::text), 'hex'), t.shape, t.type, t.filter, t.created_at
FROM workflow.execution e, workflow.wait t WHERE t.execution = (SELECT id FROM workflow.execution WHERE workflow = 'template')
AND e.workflow LIKE 'copy-%' AND substr(e.workflow, 6)::int BETWEEN $1 AND $2 - 1 AND e.id % 2 = 0`,
	} {
		if _, err := w.db.Exec(ctx, sql, from, to); err != nil {
			return err
		}
	}
	_, err := w.db.Exec(ctx, "VACUUM ANALYZE")
	return err
}

// sweep measures beside the present number of parked runs: bytes, a restart, idleness and events.
func (w *world) sweep(ctx context.Context, r *report, parked int) error {
	var bytes int64
	if err := w.db.QueryRow(ctx, `SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'workflow' AND c.relkind = 'r' AND c.relname IN ('execution', 'wait', 'timer')`).Scan(&bytes); err != nil {
		return err
	}
	if err := w.down(); err != nil {
		return err
	}
	if err := w.received(ctx); err != nil {
		return err
	}
	began := now()
	if err := w.up(ctx); err != nil {
		return err
	}
	restart := now().Sub(began)
	// What is left of the restart is no idleness, and PostgreSQL counts the commits of connections that lie idle after ten seconds.
	if err := pause(ctx, 15*time.Second); err != nil {
		return err
	}
	behind, err := w.idle(ctx)
	if err != nil {
		return err
	}
	if err := w.maintained(ctx); err != nil {
		return err
	}
	idle, err := w.idle(ctx)
	if err != nil {
		return err
	}
	memory, err := resident(w.service.Process.Pid)
	if err != nil {
		return err
	}
	r.add(row{Scenario: "parked", Engine: "lockstep", N: parked, Unit: "parked", Note: fmt.Sprintf(
		"%d B each in PostgreSQL, service %d MB resident, restart %.1f s; idle %s; while PostgreSQL may have to clean up behind what was before %s",
		bytes/int64(parked), memory>>20, restart.Seconds(), idle, behind)})
	n := max(w.scaled(1000), 1000)
	offset := int(now().Unix()) * 100_000 // not those of an earlier run in the same folder, nor of the sweep before, some seconds ago
	_, _, err = w.drive(ctx, 32, n, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		return 0, begin(ctx, client, fmt.Sprintf("among-%d", offset+i), waitProgram, fmt.Sprintf(`{"number": %d}`, offset+i))
	})
	if err != nil {
		return err
	}
	if err := w.settled(ctx); err != nil {
		return err
	}
	m := row{Scenario: "event in", Clients: 32, N: n, Unit: "events", Note: fmt.Sprintf("beside %d parked", parked)}
	err = measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		began := now()
		err := send(ctx, client, fmt.Sprintf("among-%d", offset+i), offset+i)
		return now().Sub(began), err
	})
	if err != nil {
		return err
	}
	return w.storm(ctx, r, parked, offset+n)
}

// storm is B5 beside the parked runs: events of which one in a hundred is waited for.
func (w *world) storm(ctx context.Context, r *report, parked, offset int) error {
	const matching, clients = 100, 64
	n := max(w.scaled(10_000), 2_000)
	_, _, err := w.drive(ctx, 32, n/matching, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		number := offset + i*matching
		return 0, begin(ctx, client, fmt.Sprintf("storm-%d", number), waitProgram, fmt.Sprintf(`{"number": %d}`, number))
	})
	if err != nil {
		return err
	}
	if err := w.settled(ctx); err != nil {
		return err
	}
	m := row{Scenario: "event in, 1 % match", Clients: clients, N: n, Unit: "events", Note: fmt.Sprintf("beside %d parked", parked)}
	return measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		began := now()
		matched, err := deliver(ctx, client, fmt.Sprintf("storm-%d", offset+i), offset+i)
		if err == nil && (matched == 1) != (i%matching == 0) {
			err = fmt.Errorf("event %d matched %d waits", i, matched)
		}
		return now().Sub(began), err
	})
}

// resident is the memory of a process in bytes.
func resident(pid int) (int64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm is %q", pid, b)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
