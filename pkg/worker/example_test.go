package worker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/worker"
)

type reservation struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

type receipt struct {
	Number string `json:"number"`
}

// warehouse is what the worker works with.
type warehouse interface {
	// Reserve reserves once for each key, and returns the same number for the same key.
	Reserve(ctx context.Context, key, item string, count int) (number string, enough bool, err error)
}

// A worker with one Function, until it receives a signal to stop.
func Example() {
	var stock warehouse
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: "workflow.example.com:8083", Token: os.Getenv("WORKER_TOKEN")})
	if err != nil {
		slog.Error("connecting failed", "error", err)
		return
	}
	defer func() { _ = conn.Close() }()
	reserve := worker.Handle("shop.reserve", worker.Reads, func(ctx context.Context, call worker.Call, r reservation) (receipt, error) {
		number, enough, err := stock.Reserve(ctx, call.ID, r.Item, r.Count)
		switch {
		case err != nil:
			return receipt{}, &worker.Error{Code: "unreachable", Message: "the warehouse does not answer", Retryable: true}
		case !enough:
			return receipt{}, &worker.Error{Code: "sold_out", Message: "there are not so many of " + r.Item}
		}
		return receipt{Number: number}, nil
	})
	reserve.Doc = "Reserves items of the warehouse. Answers `{number}`."
	reserve.Retry = true
	reserve.Arguments = json.RawMessage(`{"type": "object", "required": ["item", "count"], "properties": {
		"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}}`)
	err = worker.Run(ctx, worker.Config{Conn: conn, Name: "reservations-1", Functions: []worker.Function{reserve}, Log: slog.Default()})
	if err != nil {
		slog.Error("the service refuses this worker", "error", err)
	}
}
