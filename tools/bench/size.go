package main

import (
	"context"
	"fmt"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// timers is B7: how late runs are that all sleep until the same second.
func timers(ctx context.Context, w *world, r *report) error {
	n := w.scaled(10_000)
	// Late enough that all are asleep by then: starting them takes a while on a busy machine.
	until := now().Add(time.Duration(20+n/200) * time.Second).Unix()
	_, _, err := w.drive(ctx, 64, n, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		return 0, begin(ctx, c, fmt.Sprintf("sleeper-%d", i), "sleep(seconds = until - now())\n", fmt.Sprintf(`{"until": %d}`, until))
	})
	if err != nil {
		return err
	}
	if err := w.drained(ctx); err != nil {
		return err
	}
	if _, err := w.db.Exec(ctx, "CREATE TABLE due AS SELECT execution, due FROM workflow.timer"); err != nil {
		return err
	}
	if err := w.ended(ctx); err != nil {
		return err
	}
	m := row{Scenario: "timer", Engine: "lockstep", Unit: "timers due within a second"}
	var most float64
	err = w.db.QueryRow(ctx, `SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY late), percentile_cont(0.99) WITHIN GROUP (ORDER BY late), max(late) FROM (
	SELECT extract(epoch FROM x.ended_at - due.due)::float8 * 1000 AS late FROM due
	JOIN workflow.execution x ON x.id = due.execution) AS l`).Scan(&m.N, &m.P50, &m.P99, &most)
	m.Note = fmt.Sprintf("late by at most %.0f ms", most)
	r.add(m)
	return err
}

// long is B8 for whole runs: what an activity costs in a run that has many, and how long a run with that history takes to continue in a
// process that has just started.
func long(ctx context.Context, w *world, r *report) error {
	const program = stepsProgram + waitProgram
	for _, steps := range []int{1_000, 10_000, 50_000} {
		n := w.scaled(steps)
		client, err := w.client()
		if err != nil {
			return err
		}
		id := fmt.Sprintf("long-%d", n)
		before, err := w.usage(ctx)
		if err != nil {
			return err
		}
		began := now()
		if err := begin(ctx, client, id, program, fmt.Sprintf(`{"steps": %d, "number": %d}`, n, n)); err != nil {
			return err
		}
		if err := w.drained(ctx); err != nil {
			return err
		}
		took := now().Sub(began)
		after, err := w.usage(ctx)
		if err != nil {
			return err
		}
		if err := w.down(); err != nil {
			return err
		}
		if err := w.up(ctx); err != nil {
			return err
		}
		began = now()
		if err := send(ctx, client, id, n); err != nil {
			return err
		}
		if err := finish(ctx, client, id); err != nil {
			return err
		}
		m := row{
			Scenario: "activities of one run", Engine: "lockstep", Clients: 1, N: n, Unit: "activities",
			PerSecond: float64(n) / took.Seconds(), Note: fmt.Sprintf(
				"%.3f ms each; continues %.0f ms after an event, from the database", float64(took.Microseconds())/1000/float64(n),
				float64(now().Sub(began).Milliseconds())),
		}
		r.add(m.used(after.since(before), n))
	}
	return nil
}
