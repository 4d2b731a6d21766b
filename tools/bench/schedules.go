package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

// schedules is B17: how late the runs of many schedules start. Each is due once a minute, and as many in each second: those of a second are
// due at the same moment.
func schedules(ctx context.Context, w *world, r *report) error {
	n := w.scaled(10_000)
	_, _, err := w.drive(ctx, 64, n, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		_, err := c.RegisterSchedule(ctx, &autoflowv1.RegisterScheduleRequest{
			OrganizationId: organization, Name: fmt.Sprintf("s-%d", i), Starlark: []byte(emptyProgram),
			Spec: &autoflowv1.ScheduleSpec{Every: durationpb.New(time.Minute), Anchor: &timestamppb.Timestamp{Seconds: int64(i % 60)}},
		})
		return 0, err
	})
	if err != nil {
		return err
	}
	if _, err := w.db.Exec(ctx, "ANALYZE"); err != nil {
		return err
	}
	// The first seconds may still have registrations in them.
	began := now().Add(5 * time.Second)
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	if err := clock.Sleep(ctx, clock.System(), 70*time.Second); err != nil {
		return err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	m := row{Scenario: "schedules", Engine: "lockstep", Unit: "schedules due each minute"}
	var most float64
	var runs int
	if err := w.db.QueryRow(ctx, `SELECT count(*), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY late), 0),
    coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY late), 0), coalesce(max(late), 0) FROM (
	SELECT extract(epoch FROM x.created_at - f.due)::float8 * 1000 AS late FROM workflow.schedule_fire f
	JOIN workflow.execution x ON x.organization = f.organization AND x.workflow = f.workflow WHERE f.due >= $1 AND f.due < $2) AS l`,
		began, began.Add(time.Minute)).Scan(&runs, &m.P50, &m.P99, &most); err != nil {
		return err
	}
	m.N = n
	m = m.used(after.since(before), runs)
	m.Note = fmt.Sprintf("%d runs, late by at most %.0f ms", runs, most)
	if runs != n {
		return fmt.Errorf("found %d runs of a minute, expected one of each of %d schedules", runs, n)
	}
	r.add(m)
	return w.besideRivals(ctx, r, rival{"dbos", "late until the program begins; ", []peerRun{{modeSchedules, 1, 1, n}}})
}
