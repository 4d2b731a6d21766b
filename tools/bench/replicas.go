package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
)

const (
	// replicasMost is over how many processes of the service B18 spreads its clients at most, and replicaRounds how often each number has
	// its turn: one after the other, since the machine is not equally fast all the time.
	replicasMost, replicaRounds = 3, 3
	// sampleEvery is how often B18 looks what the sessions of the database are waiting for.
	sampleEvery = 20 * time.Millisecond
)

// replicas is B18: the same work through one, two and three processes of the service on one database. Processor time for each must stay the
// same, and sessions must hardly wait for each other's locks; throughput grows only where the machine has cores for it.
func replicas(ctx context.Context, w *world, r *report) error {
	addresses := []string{w.config.GRPCAddress}
	for len(addresses) < replicasMost {
		address, err := w.join(ctx)
		if err != nil {
			return err
		}
		addresses = append(addresses, address)
	}
	w.over = addresses
	if err := warm(ctx, w, stepsProgram, `{"steps": 2}`); err != nil {
		return err
	}
	const clients = 64 // of each process: a commit has what many callers have, and costs less for each the more they are
	for round := range replicaRounds {
		for n := 1; n <= replicasMost; n++ {
			w.over = addresses[:n]
			for _, c := range []struct {
				name string
				n    int
				do   func(ctx context.Context, c autoflowv1.AutoFlowClient, id string, i int) error
			}{
				{"1-step", 3000, func(ctx context.Context, c autoflowv1.AutoFlowClient, id string, _ int) error {
					return complete(ctx, c, id, stepsProgram, `{"steps": 1}`)
				}},
				{"wait and event", 1500, func(ctx context.Context, c autoflowv1.AutoFlowClient, id string, i int) error {
					number := (round*replicasMost+n)*1_000_000 + i
					if err := begin(ctx, c, id, waitProgram, fmt.Sprintf(`{"number": %d}`, number)); err != nil {
						return err
					}
					if _, err := deliver(ctx, c, id, number); err != nil { // before the wait or after it
						return err
					}
					return finish(ctx, c, id)
				}},
			} {
				m := row{Scenario: fmt.Sprintf("%s, %d processes", c.name, n), Clients: n * clients, N: w.scaled(n * c.n), Unit: "workflows"}
				sampler, err := w.sample(ctx)
				if err != nil {
					return err
				}
				err = measured(ctx, w, r, m, func(ctx context.Context, client autoflowv1.AutoFlowClient, i int) (time.Duration, error) {
					began := now()
					err := c.do(ctx, client, fmt.Sprintf("replica-%s-%d-%d-%d", c.name[:1], round, n, i), i)
					return now().Sub(began), err
				})
				note := sampler()
				if err != nil {
					return err
				}
				r.Rows[len(r.Rows)-1].Note = note
			}
		}
	}
	return nil
}

// sample looks what active sessions of the service wait for, until it is asked for what it has seen.
func (w *world) sample(ctx context.Context) (seen func() string, err error) {
	conn, err := pgx.Connect(ctx, w.database.URL())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var active, locks, advisory int
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for {
			var a, l, v int
			err := conn.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock'),
	count(*) FILTER (WHERE wait_event_type = 'Lock' AND wait_event = 'advisory')
FROM pg_stat_activity WHERE state <> 'idle' AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&a, &l, &v)
			if err != nil || clock.Sleep(ctx, clock.System(), sampleEvery) != nil {
				return
			}
			active, locks, advisory = active+a, locks+l, advisory+v
		}
	})
	return func() string {
		cancel()
		sampling.Wait()
		_ = conn.Close(context.WithoutCancel(ctx))
		return fmt.Sprintf("%.1f %% of %d samples wait for a lock, %.1f %% for one of matching",
			100*float64(locks)/float64(max(active, 1)), active, 100*float64(advisory)/float64(max(active, 1)))
	}, nil
}
