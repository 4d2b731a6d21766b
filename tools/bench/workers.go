package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/worker"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

const (
	workToken     = "bench-worker"
	workerProgram = "for i in range(calls):\n    if run(\"bench.echo\", {\"i\": i}) != i:\n        fail(\"another answer\")\n"
	workerCalls   = 100
)

// withWorker lets a worker connect.
func withWorker(c *workflow.Config) {
	sum := sha256.Sum256([]byte(workToken))
	c.Tokens = append(c.Tokens, workflow.AccessToken{
		Name: "worker", Scope: "work", Prefix: "bench", Organization: organization, SHA256: hex.EncodeToString(sum[:]),
	})
}

// workers is B16: runs that call a Function of a worker again and again, each answer durable before the next call. A round trip is the time
// between two calls of one run at the worker: the answer is stored, the run goes through its next turn, and the next call is stored and
// given.
func workers(ctx context.Context, w *world, r *report) error {
	conn, err := rpc.Dial(rpc.ClientConfig{Address: w.config.GRPCAddress, Token: workToken, Insecure: true})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var mu sync.Mutex
	last, trips := map[string]time.Time{}, latencies{}
	echo := worker.Handle("bench.echo", worker.Reads, func(_ context.Context, c worker.Call, a struct{ I int }) (int, error) {
		at := now()
		mu.Lock()
		defer mu.Unlock()
		if before, again := last[c.Workflow]; again {
			trips = append(trips, at.Sub(before))
		}
		last[c.Workflow] = at
		return a.I, nil
	})
	work, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(work, worker.Config{Conn: conn, Name: "bench", InFlight: 64, Functions: []worker.Function{echo}})
	}()
	defer func() {
		stop()
		<-ended //nolint:errcheck // it was stopped, and has no other error
	}()
	inputs := fmt.Sprintf(`{"calls": %d}`, workerCalls)
	client, err := w.client()
	if err != nil {
		return err
	}
	if err := warm(ctx, w, emptyProgram, "{}"); err != nil {
		return err
	}
	if err := registered(ctx, client); err != nil {
		return err
	}
	if err := begin(ctx, client, "workers-warm", workerProgram, inputs); err != nil {
		return err
	}
	if err := finish(ctx, client, "workers-warm"); err != nil {
		return err
	}
	for _, c := range []struct{ clients, n int }{{1, 20}, {64, 256}} {
		mu.Lock()
		clear(last)
		trips = trips[:0]
		mu.Unlock()
		m := row{Scenario: fmt.Sprintf("%d calls of a worker", workerCalls), Clients: c.clients, N: w.scaled(c.n), Unit: "workflows"}
		start := now()
		err := measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
			id := fmt.Sprintf("workers-%d-%d", c.clients, i)
			began := now()
			if err := begin(ctx, client, id, workerProgram, inputs); err != nil {
				return 0, err
			}
			err := finish(ctx, client, id)
			return now().Sub(began), err
		})
		if err != nil {
			return err
		}
		mu.Lock()
		r.add(row{
			Scenario: "round trip of a worker", Engine: "lockstep", Clients: c.clients, N: len(trips), Unit: "calls",
			PerSecond: float64(m.N*workerCalls) / now().Sub(start).Seconds(), P50: trips.at(0.5), P99: trips.at(0.99),
		})
		mu.Unlock()
	}
	return w.besideRivals(ctx, r, rival{"restate", "its own storage; a call of another service, a latency is a workflow's; ", []peerRun{
		{modeCalls, workerCalls, 1, w.scaled(20)}, {modeCalls, workerCalls, 64, w.scaled(256)},
	}})
}

// registered returns when the worker's Function is known, which is soon after it has connected.
func registered(ctx context.Context, client autoflowv1.AutoFlowClient) error {
	for {
		checked, err := client.CheckProgram(ctx, &autoflowv1.CheckProgramRequest{OrganizationId: organization, Starlark: []byte(workerProgram)})
		if err != nil || len(checked.GetProblems()) == 0 {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
