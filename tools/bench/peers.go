package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// peers is B2 with DBOS Transact in our place: the same steps and clients, on a database of its own in the same server, with
// the same durability. Its program is in tools/bench/peers, a module outside of the workspace.
func peers(ctx context.Context, w *world, r *report) error {
	if w.options.peers == "" {
		return nil
	}
	program := filepath.Join(w.dir, "dbos")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".") //nolint:gosec // a folder of this repository
	build.Dir = filepath.Join(w.options.peers, "dbos")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the peer: %w: %s", err, out)
	}
	if _, err := w.db.Exec(ctx, "CREATE DATABASE dbos"); err != nil {
		return err
	}
	for _, c := range []struct{ steps, clients, n int }{{1, 1, 200}, {1, 64, 3000}, {10, 64, 500}} {
		if err := w.peer(ctx, r, program, c.steps, c.clients, w.scaled(c.n)); err != nil {
			return err
		}
	}
	return nil
}

// peer runs the peer's program once.
func (w *world) peer(ctx context.Context, r *report, program string, steps, clients, n int) error {
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	run := exec.CommandContext(ctx, program, "-steps", strconv.Itoa(steps), "-c", strconv.Itoa(clients), "-n", strconv.Itoa(n)) //nolint:gosec // built above
	run.Env = append(os.Environ(), "DBURL="+strings.Replace(w.database.URL(), "/postgres?", "/dbos?", 1))
	out, err := run.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	var result struct {
		PerSecond float64 `json:"per_second"`
		P50       float64 `json:"p50_ms"`
		P99       float64 `json:"p99_ms"`
		StartP50  float64 `json:"start_p50_ms"`
		CPU       float64 `json:"cpu_ms"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return fmt.Errorf("the peer answered %q: %w", out, err)
	}
	// What it does to get warm and to end is in the server's figures, and not in its own.
	used := after.since(before)
	postgres := float64(used.postgres.Microseconds()) / 1000 / float64(n+warmUp)
	r.add(row{
		Scenario: fmt.Sprintf("%d-step", steps), Engine: "dbos", Clients: clients, N: n, Unit: "workflows",
		PerSecond: result.PerSecond, P50: result.P50, P99: result.P99, CPU: result.CPU + postgres, Service: result.CPU, Postgres: postgres,
		WAL: float64(used.wal) / float64(n+warmUp), Note: fmt.Sprintf("start p50 %.2f ms; service and client are one process", result.StartP50),
	})
	return nil
}

// warmUp is how many workflows the peer runs before it counts.
const warmUp = 100
