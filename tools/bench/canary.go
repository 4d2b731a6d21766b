package main

import (
	"context"
	"fmt"
	"time"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const (
	// canaryProgram is a deployment: at each gate it advances, soaks, and continues after the verdict that all is well, which may have
	// been sent before the end of the soak.
	canaryProgram = `
for gate in range(gates):
    run("checkpoint", {"state": {"gate": gate}})
    sleep(seconds = soak)
    verdict = wait_for_event("com.example.verdict", filter = {"deployment": deployment, "gate": gate}, timeout = 600)
    if verdict == None or not verdict.data.well:
        fail("gate %d was not passed" % gate)
`
	canaryGates = 4
	// canarySoak stands for an hour: a soak costs its two turns, however long it lasts.
	canarySoak = 5 * time.Second
)

// canary is B13: 200 deployments at a time that pass four gates each, with a soak in each. How late each soak was over, and what a gate
// has cost. None may be over too early, and none be left out.
func canary(ctx context.Context, w *world, r *report) error {
	deployments := w.scaled(200)
	if err := warm(ctx, w, stepsProgram, `{"steps": 2}`); err != nil {
		return err
	}
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	began := now()
	_, _, err = w.drive(ctx, deployments, deployments, func(ctx context.Context, c autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
		id := fmt.Sprintf("canary-%d", i)
		if err := begin(ctx, c, id, canaryProgram, fmt.Sprintf(`{"deployment": %d, "gates": %d, "soak": %d}`, i, canaryGates,
			int(canarySoak.Seconds()))); err != nil {
			return 0, err
		}
		for gate := range canaryGates {
			// Some verdicts come before the end of the soak, and some behind it.
			if err := pause(ctx, canarySoak*time.Duration(80+i%40)/100); err != nil {
				return 0, err
			}
			if _, err := c.CloudEvent(ctx, &autoflowv1.CloudEventRequest{CloudEvent: fmt.Appendf(nil,
				`{"specversion":"1.0","id":"%s-%d","source":"/bench","type":"com.example.verdict","organizationid":"%d","data":{"deployment":%d,"gate":%d,"well":true}}`,
				id, gate, organization, i, gate)}); err != nil {
				return 0, err
			}
		}
		return 0, finish(ctx, c, id)
	})
	if err != nil {
		return err
	}
	took := now().Sub(began)
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	m := row{Scenario: "canary, soak", Engine: "lockstep", Clients: deployments, N: deployments * canaryGates, Unit: "gates"}
	var gates, early int
	var most float64
	// A soak begins with the turn that has recorded the step before it.
	err = w.db.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE late < 0), percentile_cont(0.5) WITHIN GROUP (ORDER BY late), percentile_cont(0.99) WITHIN GROUP (ORDER BY late), max(late) FROM (
	SELECT extract(epoch FROM soak.recorded_at - step.recorded_at)::float8 * 1000 - $1 AS late FROM workflow.execution x
	JOIN workflow.entry soak ON soak.execution = x.id AND soak.kind = 'sleep'
	JOIN workflow.entry step ON step.execution = x.id AND step.seq = soak.seq - 1 AND step.kind = 'run' WHERE x.workflow LIKE 'canary-%'
	AND x.state = 'completed') AS l`,
		float64(canarySoak.Milliseconds())).Scan(&gates, &early, &m.P50, &m.P99, &most)
	if err != nil {
		return err
	}
	m.Note = fmt.Sprintf("soaks of %s, late by at most %.0f ms; all passed in %.1f s", canarySoak, most, took.Seconds())
	r.add(m.used(after.since(before), m.N))
	if gates != m.N || early > 0 {
		return fmt.Errorf("%d gates were passed, expected %d; %d soaks were over too early", gates, m.N, early)
	}
	return nil
}
