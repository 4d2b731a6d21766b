package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const (
	// quietTenants are organizations that start a workflow each second, quietFor is for how long they do before there is noise.
	quietTenants = 9
	quietFor     = 10 * time.Second
	// noisyBatch is how many workflows the noisy organization starts in one request.
	noisyBatch = 500
)

// noisy is B12: nine organizations that start a workflow of one step each second, by themselves, and while another one has 10,000 of
// ten steps queued. What is measured is how long theirs take.
func noisy(ctx context.Context, w *world, r *report) error {
	if err := warm(ctx, w, stepsProgram, `{"steps": 2}`); err != nil {
		return err
	}
	alone, cancel := context.WithTimeout(ctx, quietFor)
	err := w.quiet(ctx, alone, r, row{Scenario: "1-step, nine tenants", Note: "nobody else"})
	cancel()
	if err != nil {
		return err
	}
	n := w.scaled(10_000)
	client, err := w.client()
	if err != nil {
		return err
	}
	began := now()
	for from := 0; from < n; from += noisyBatch {
		var batch []*autoflowv1.StartWorkflowRequest
		for i := from; i < min(n, from+noisyBatch); i++ {
			batch = append(batch, &autoflowv1.StartWorkflowRequest{
				OrganizationId: organization, WorkflowId: fmt.Sprintf("noise-%d", i), Starlark: []byte(stepsProgram), Inputs: []byte(`{"steps": 10}`),
			})
		}
		resp, err := client.StartWorkflows(ctx, &autoflowv1.StartWorkflowsRequest{Workflows: batch})
		if err != nil {
			return err
		}
		for _, result := range resp.GetResults() {
			if refused := result.GetRefused(); refused != nil {
				return fmt.Errorf("a start was refused: %s", refused.GetMessage())
			}
		}
	}
	queued := now().Sub(began)
	noise, over := context.WithCancelCause(ctx)
	go func() { over(w.silent(noise)) }()
	err = w.quiet(ctx, noise, r, row{
		Scenario: "1-step, nine tenants",
		Note:     fmt.Sprintf("beside %d queued of one tenant within %.1f s", n, queued.Seconds()),
	})
	if err != nil {
		return err
	}
	took := now().Sub(began)
	var left int
	if err := w.db.QueryRow(ctx, "SELECT count(*) FROM workflow.execution WHERE state <> 'completed'").Scan(&left); err != nil {
		return err
	}
	r.add(row{Scenario: "10-step, noisy tenant", Engine: "lockstep", N: n, Unit: "workflows", PerSecond: float64(n) / took.Seconds()})
	if left > 0 {
		return fmt.Errorf("%d runs have not completed", left)
	}
	return nil
}

// silent returns when the noisy tenant has nothing under way any more.
func (w *world) silent(ctx context.Context) error {
	for {
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		var left int
		if err := w.db.QueryRow(ctx, "SELECT count(*) FROM workflow.execution WHERE organization = $1 AND state IN ('running', 'parked')",
			organization).Scan(&left); err != nil || left == 0 {
			return err
		}
	}
}

// quiet has the nine organizations at work until noise is over, and adds a row with what theirs took.
func (w *world) quiet(ctx, noise context.Context, r *report, m row) error {
	began := now()
	all, err := w.tenants(ctx, noise)
	if err != nil {
		return err
	}
	r.add(m.of(all, now().Sub(began)))
	return nil
}

// of is the row with what the nine organizations have measured.
func (m row) of(all latencies, took time.Duration) row {
	m.Engine, m.Clients, m.N, m.Unit = "lockstep", quietTenants, len(all), "workflows"
	m.PerSecond, m.P50, m.P99 = float64(len(all))/took.Seconds(), all.at(0.5), all.at(0.99)
	m.Note += fmt.Sprintf("; p95 %.1f ms", all.at(0.95))
	return m
}

// tenants are nine organizations, each of which starts a workflow of one step every second, until noise is over.
func (w *world) tenants(ctx, noise context.Context) (all latencies, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	failed := make(chan error, quietTenants)
	for tenant := range quietTenants {
		client, err := w.client()
		if err != nil {
			return nil, err
		}
		group.Go(func() {
			if pause(noise, time.Duration(tenant)*time.Second/quietTenants) != nil {
				return // it was over before its turn
			}
			for noise.Err() == nil {
				took, err := patient(ctx, client, int64(organization+1+tenant), fmt.Sprintf("quiet-%d", now().UnixNano()))
				if err != nil {
					failed <- fmt.Errorf("tenant %d: %w", tenant, err)
					return
				}
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
				_ = pause(noise, time.Second-took) // ends early with the noise
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return all, nil
	}
}

// patient starts a workflow of one step for an organization, and answers how long it took until its end was known.
func patient(ctx context.Context, c autoflowv1.AutoFlowClient, tenant int64, id string) (time.Duration, error) {
	began := now()
	if _, err := c.StartWorkflow(ctx, &autoflowv1.StartWorkflowRequest{
		OrganizationId: tenant, WorkflowId: id, Starlark: []byte(stepsProgram), Inputs: []byte(`{"steps": 1}`),
	}); err != nil {
		return 0, err
	}
	resp, err := c.GetWorkflow(ctx, &autoflowv1.GetWorkflowRequest{OrganizationId: tenant, WorkflowId: id, Wait: durationpb.New(longest)})
	if err != nil {
		return 0, err
	}
	if state := resp.GetWorkflow().GetState(); state != autoflowv1.WorkflowState_WORKFLOW_STATE_COMPLETED {
		return 0, fmt.Errorf("workflow %s is %s after %s", id, state, longest)
	}
	return now().Sub(began), nil
}
