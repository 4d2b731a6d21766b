package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// killProgram takes a step every two seconds; killEntries is the length of its history in the end.
const (
	killProgram = "for i in range(8):\n    run(\"checkpoint\", {\"state\": {\"i\": i}})\n    sleep(seconds = 2)\n"
	killEntries = 17
)

// killed is B11: a kill -9 with runs under way, beside parked ones, which are copies but for a tenth of those that run.
// It measures the time until each run has continued, and until all have ended.
func killed(ctx context.Context, w *world, r *report) error {
	running, waiting, parked := w.scaled(10_000), w.scaled(1000), w.scaled(100_000)
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
	if err := w.copyParked(ctx, 0, parked); err != nil {
		return err
	}
	_, _, err = w.drive(ctx, 32, running+waiting, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		if i < waiting {
			return 0, begin(ctx, c, fmt.Sprintf("waiting-%d", i), waitProgram, fmt.Sprintf(`{"number": %d}`, i))
		}
		return 0, begin(ctx, c, fmt.Sprintf("running-%d", i), killProgram, "{}")
	})
	if err != nil {
		return err
	}
	_ = w.service.Process.Kill() // it may have ended by itself
	_ = w.service.Wait()         // says that it was killed
	if _, err := w.db.Exec(ctx, `CREATE TABLE standing AS SELECT id, (SELECT max(seq) FROM workflow.entry WHERE execution = id) AS seq
FROM workflow.execution WHERE workflow LIKE 'running-%' AND state IN ('running', 'parked')`); err != nil {
		return err
	}
	began := now()
	if err := w.up(ctx); err != nil {
		return err
	}
	up := now().Sub(began)
	if err := w.gone(ctx); err != nil {
		return err
	}
	onward := now().Sub(began)
	_, _, err = w.drive(ctx, 32, running+waiting, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		if i < waiting {
			if err := send(ctx, c, fmt.Sprintf("waiting-%d", i), i); err != nil {
				return 0, err
			}
			return 0, finish(ctx, c, fmt.Sprintf("waiting-%d", i))
		}
		return 0, finish(ctx, c, fmt.Sprintf("running-%d", i))
	})
	if err != nil {
		return err
	}
	ended := now().Sub(began)
	var wrong int
	if err := w.db.QueryRow(ctx, `SELECT count(*) FROM workflow.execution x WHERE x.workflow ~ '^(running|waiting)-'
AND (x.last_seq <> (SELECT count(*) FROM workflow.entry e WHERE e.execution = x.id) OR x.state <> 'completed' OR (x.workflow LIKE
    'running-%'
AND x.last_seq <> $1))`, killEntries).Scan(&wrong); err != nil {
		return err
	}
	note, err := json.Marshal(map[string]any{
		"parked": parked, "restart_s": up.Seconds(), "all_continued_s": onward.Seconds(), "all_ended_s": ended.Seconds(),
		"lost_or_with_gaps": wrong,
	})
	if err != nil {
		return err
	}
	r.add(row{Scenario: "kill -9", Engine: "lockstep", N: running + waiting, Unit: "runs", Note: string(note)})
	if wrong > 0 {
		return fmt.Errorf("%d runs have lost something", wrong)
	}
	return nil
}

// gone returns when every run that was under way at the kill has recorded something since.
func (w *world) gone(ctx context.Context) error {
	for {
		var left int
		if err := w.db.QueryRow(ctx, "SELECT count(*) FROM standing WHERE NOT EXISTS (SELECT FROM workflow.entry n WHERE n.execution = standing.id AND n.seq > coalesce(standing.seq, 0))").Scan(&left); err != nil || left == 0 {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
