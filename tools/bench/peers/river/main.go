// Command river works jobs on River, and prints one line of JSON: a peer that tools/bench compares with. A job is no workflow: it has
// no history and no steps, so what it takes is what a queue on PostgreSQL costs. It is a module of its own, outside of the workspace,
// so that nothing of ours depends on it.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/lockstep-cd/lockstep/tools/bench/peers/peer"
)

// job is known by its number.
type job struct {
	Number int `json:"number"`
}

// Kind is its name in the table.
func (job) Kind() string { return "bench" }

// worker signals that a job was worked to the client that waits for it.
type worker struct {
	river.WorkerDefaults[job]

	worked []chan struct{}
}

// Work does nothing.
func (w *worker) Work(_ context.Context, j *river.Job[job]) error {
	close(w.worked[j.Args.Number])
	return nil
}

func main() { peer.Main("river", open) }

func open(o peer.Order) (peer.Engine, error) {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv("DBURL"))
	if err != nil {
		return peer.Engine{}, err
	}
	config.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return peer.Engine{}, err
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return peer.Engine{}, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return peer.Engine{}, err
	}
	w := &worker{worked: make([]chan struct{}, o.Numbers)}
	for i := range w.worked {
		w.worked[i] = make(chan struct{})
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}}, Workers: workers,
		FetchCooldown: time.Millisecond, Logger: quiet,
	})
	if err != nil {
		return peer.Engine{}, err
	}
	if err := client.Start(ctx); err != nil {
		return peer.Engine{}, err
	}
	return peer.Engine{
		Start: func(number int) error {
			_, err := client.Insert(ctx, job{Number: number}, nil)
			return err
		},
		Await: func(number int) error {
			<-w.worked[number]
			return nil
		},
		// It writes down what was worked before it ends: that is part of what a job costs.
		Finish: func() error { return client.Stop(ctx) },
	}, nil
}
