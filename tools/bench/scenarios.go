package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// scenario is one thing to measure, on an installation of its own.
type scenario struct {
	name   string
	config func(*workflow.Config)
	run    func(ctx context.Context, w *world, r *report) error
}

// scenarios are all there are; their numbers are those of the engine's design.
func scenarios() []scenario {
	return []scenario{
		{name: "B1-start", run: starts},
		{name: "B2-steps", run: steps},
		{name: "B14-peers", run: peers},
		{name: "B2-events-hot", config: hot, run: wakes("hot")},
		{name: "B2-events-evicted", config: evicted, run: wakes("evicted")},
		{name: "B3-branches", run: fan},
		{name: "B4-parked", run: parkedSweep},
		{name: "B6-race", run: race},
		{name: "B7-timers", run: timers},
		{name: "B8-long", run: long},
		{name: "B9-churn", run: churn},
		{name: "B10-duplicates", run: duplicates},
		{name: "B11-kill", run: killed},
		{name: "B12-noisy", run: noisy},
		{name: "B12-hogs", run: hogs, config: func(c *workflow.Config) { c.TrustPrograms = false }},
		{name: "B13-canary", run: canary},
		{name: "B15-records", run: records},
		{name: "B16-workers", run: workers, config: withWorker},
		{name: "B17-schedules", run: schedules},
		{name: "B18-replicas", run: replicas},
		{name: "B19-children", run: children},
		{name: "B20-messages", run: messages},
		{name: "B21-checks", run: webRequests, config: reachable},
		{name: "B22-policies", run: policed},
		{name: "B23-agents", run: agents},
	}
}

// The programs. An empty one is all start and end; a step is the cheapest Function there is, whose answer is made durable
// before the next is called.
const (
	emptyProgram = "done = True\n"
	stepsProgram = "for i in range(steps):\n    run(\"checkpoint\", {\"state\": {\"i\": i}})\n"
)

// warm has the service do a little of everything first: compile, connect, plan. A database that is older than a minute
// knows about how many rows its tables have, so this one is analyzed.
func warm(ctx context.Context, w *world, program, inputs string) error {
	_, _, err := w.drive(ctx, 16, 300, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		id := fmt.Sprintf("warm-%d", i)
		if err := begin(ctx, c, id, program, inputs); err != nil {
			return 0, err
		}
		return 0, finish(ctx, c, id)
	})
	if err == nil {
		_, err = w.db.Exec(ctx, "ANALYZE")
	}
	return err
}

// measured runs do n times with so many clients, and adds a row with what everything together has used.
func measured(
	ctx context.Context, w *world, r *report, m row, do func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error),
) error {
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	all, took, err := w.drive(ctx, m.Clients, m.N, do)
	if err != nil {
		return err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	m.Engine, m.PerSecond, m.P50, m.P99 = cmp.Or(m.Engine, "lockstep"), float64(m.N)/took.Seconds(), all.at(0.5), all.at(0.99)
	r.add(m.used(after.since(before), m.N))
	return nil
}

func (w *world) scaled(n int) int { return max(1, int(float64(n)*w.options.scale)) }

// starts is B1: how fast starts are answered. The runs end beside that, and what they cost is in the figures.
func starts(ctx context.Context, w *world, r *report) error {
	if err := warm(ctx, w, emptyProgram, "{}"); err != nil {
		return err
	}
	for _, c := range []struct{ clients, n int }{{1, 500}, {64, 10_000}, {256, 15_000}} {
		m := row{Scenario: "start", Clients: c.clients, N: w.scaled(c.n), Unit: "starts"}
		err := measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
			began := now()
			err := begin(ctx, client, fmt.Sprintf("start-%d-%d", c.clients, i), emptyProgram, fmt.Sprintf(`{"number": %d}`, i))
			return now().Sub(began), err
		})
		if err != nil {
			return err
		}
		if err := w.drained(ctx); err != nil {
			return err
		}
	}
	return w.startMany(ctx, r)
}

// startMany is B1 with many starts in one request. A latency is a request's.
func (w *world) startMany(ctx context.Context, r *report) error {
	const each, clients = 100, 8
	n := w.scaled(300)
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	all, took, err := w.drive(ctx, clients, n, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		req := &autoflowv1.StartWorkflowsRequest{}
		for j := range each {
			req.Workflows = append(req.Workflows, &autoflowv1.StartWorkflowRequest{
				OrganizationId: organization, WorkflowId: fmt.Sprintf("many-%d-%d", i, j), Starlark: []byte(emptyProgram),
				Inputs: fmt.Appendf(nil, `{"number": %d}`, j),
			})
		}
		began := now()
		resp, err := client.StartWorkflows(ctx, req)
		if err != nil {
			return 0, err
		}
		for _, result := range resp.GetResults() {
			if !result.GetStarted().GetCreated() {
				return 0, fmt.Errorf("a start was answered with %v", result)
			}
		}
		return now().Sub(began), nil
	})
	if err != nil {
		return err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	m := row{
		Scenario: "start, 100 a request", Engine: "lockstep", Clients: clients, N: n * each, Unit: "starts",
		PerSecond: float64(n*each) / took.Seconds(), P50: all.at(0.5), P99: all.at(0.99),
	}
	r.add(m.used(after.since(before), m.N))
	return nil
}

// inTwoCalls starts a workflow and then asks for its end.
func inTwoCalls(ctx context.Context, c autoflowv1.AutoFlowClient, id, program, inputs string) error {
	if err := begin(ctx, c, id, program, inputs); err != nil {
		return err
	}
	return finish(ctx, c, id)
}

// steps is B2: workflows from start to end, as the caller sees it, who waits for the end with the start. A row with two calls for each is
// what was measured before there was one.
func steps(ctx context.Context, w *world, r *report) error {
	if err := warm(ctx, w, stepsProgram, `{"steps": 2}`); err != nil {
		return err
	}
	for _, c := range []struct {
		name              string
		steps, clients, n int
		do                func(ctx context.Context, c autoflowv1.AutoFlowClient, id, program, inputs string) error
	}{
		{"1-step", 1, 1, 300, complete},
		{"1-step", 1, 64, 6000, complete},
		{"1-step, two calls", 1, 64, 6000, inTwoCalls},
		{"10-step", 10, 1, 100, complete},
		{"10-step", 10, 64, 1500, complete},
		{"10-step", 10, 512, 3000, complete},
	} {
		m := row{Scenario: c.name, Clients: c.clients, N: w.scaled(c.n), Unit: "workflows"}
		inputs := fmt.Sprintf(`{"steps": %d}`, c.steps)
		err := measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
			began := now()
			err := c.do(ctx, client, fmt.Sprintf("%s-%d-%d", strings.ReplaceAll(c.name, " ", "-"), c.clients, i), stepsProgram, inputs)
			return now().Sub(began), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// drained returns when nothing runs any more.
func (w *world) drained(ctx context.Context) error {
	for {
		var running int
		if err := w.db.QueryRow(ctx, "SELECT count(*) FROM "+schema+".runnable").Scan(&running); err != nil || running == 0 {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// ended returns when every run has ended.
func (w *world) ended(ctx context.Context) error {
	for {
		var left int
		if err := w.db.QueryRow(ctx, "SELECT count(*) FROM "+schema+".execution WHERE state IN ('running', 'parked')").Scan(&left); err != nil || left == 0 {
			return err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}
