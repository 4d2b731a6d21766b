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
	"time"
)

// peerRun is one run of a peer in a mode (tools/bench/peers/peer): n workflows of so many steps, or parts, or n schedules.
type peerRun struct {
	mode              string
	steps, clients, n int
}

// The modes of peers that tools/bench asks for.
const (
	modeRun       = "run"
	modeStart     = "start"
	modeChildren  = "children"
	modeCalls     = "calls"
	modeMessages  = "messages"
	modeSchedules = "schedules"
)

// names are the scenario of a run's row, and what is counted.
func (c peerRun) names() (scenario, unit string) {
	switch c.mode {
	case modeStart:
		return "start", "workflows"
	case modeChildren:
		return "children of one run", "children"
	case modeCalls:
		return "round trip of a worker", "calls"
	case modeMessages:
		return "message and answer", "messages"
	case modeSchedules:
		return "schedules", "schedules due each minute"
	}
	return fmt.Sprintf("%d-step", c.steps), "workflows"
}

// counted is how many of them there are.
func (c peerRun) counted() int {
	switch c.mode {
	case modeChildren, modeCalls, modeMessages:
		return c.n * c.steps
	}
	return c.n
}

// rival is an engine that stands in our place: the folder of its program, what it is asked to do, and what a reader has to know of it.
type rival struct {
	name, note string
	runs       []peerRun
}

// rivals are those of B14.
var rivals = []rival{ //nolint:gochecknoglobals // a table
	{"dbos", "", []peerRun{{modeStart, 1, 64, 3000}, {modeRun, 1, 1, 200}, {modeRun, 1, 64, 3000}, {modeRun, 10, 64, 500}}},
	{
		"restate", "its own storage; ",
		[]peerRun{{modeStart, 1, 64, 3000}, {modeRun, 1, 1, 200}, {modeRun, 1, 64, 3000}, {modeRun, 10, 64, 500}},
	},
	{"goworkflows", "", []peerRun{{modeStart, 1, 64, 500}, {modeRun, 1, 1, 10}, {modeRun, 1, 64, 500}, {modeRun, 10, 64, 100}}},
	{"river", "a job, no workflow; ", []peerRun{{modeStart, 1, 64, 3000}, {modeRun, 1, 1, 200}, {modeRun, 1, 64, 3000}}},
}

// peers is B14: other engines in our place, with the steps and clients of B1 and B2, each on a database of its own in the same server, with
// the same durability. Their programs are in tools/bench/peers, modules outside of the workspace. One that is not available here has a row
// that says so.
func peers(ctx context.Context, w *world, r *report) error {
	var all []rival
	for _, rival := range rivals {
		scaled := rival
		scaled.runs = nil
		for _, c := range rival.runs {
			c.n = w.scaled(c.n)
			scaled.runs = append(scaled.runs, c)
		}
		all = append(all, scaled)
	}
	return w.besideRivals(ctx, r, all...)
}

// besideRivals has rivals do what they are asked, where peers are asked for.
func (w *world) besideRivals(ctx context.Context, r *report, rivals ...rival) error {
	if w.options.peers == "" {
		return nil
	}
	for _, rival := range rivals {
		program, err := w.rival(ctx, rival.name)
		for _, c := range rival.runs {
			if err == nil {
				err = w.peer(ctx, r, rival.name, program, rival.note, c)
			}
		}
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			r.add(row{
				Scenario: "peer", Engine: rival.name,
				Note: fmt.Sprintf("not measured: %.300s", strings.Join(strings.Fields(err.Error()), " ")),
			})
		}
	}
	return nil
}

// rival builds the program of a peer, and makes it a database.
func (w *world) rival(ctx context.Context, name string) (program string, err error) {
	if program, err = filepath.Abs(filepath.Join(w.dir, name)); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".") //nolint:gosec // a folder of this repository
	build.Dir = filepath.Join(w.options.peers, name)
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the peer: %w: %s", err, out)
	}
	_, err = w.db.Exec(ctx, "CREATE DATABASE "+name)
	return program, err
}

// peer runs the peer's program once.
func (w *world) peer(ctx context.Context, r *report, name, program, note string, c peerRun) error {
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	scenario, unit := c.names()
	run := exec.CommandContext(ctx, program, "-mode", c.mode, "-steps", strconv.Itoa(c.steps), "-c", strconv.Itoa(c.clients), "-n", //nolint:gosec // built above
		strconv.Itoa(c.n))
	run.Env = append(os.Environ(), "DBURL="+strings.Replace(w.database.URL(), "/postgres?", "/"+name+"?", 1))
	out, err := run.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return err
	}
	if err := w.departed(ctx, name); err != nil {
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
	done := c.counted() + warmUp
	if c.mode == modeSchedules {
		done = c.n // and what it takes to register them
	}
	postgres := float64(used.postgres.Microseconds()) / 1000 / float64(done)
	if c.mode == modeRun && result.StartP50 > 0 {
		note += fmt.Sprintf("start p50 %.2f ms; ", result.StartP50)
	}
	r.add(row{
		Scenario: scenario, Engine: name, Clients: c.clients, N: c.counted(), Unit: unit,
		PerSecond: result.PerSecond, P50: result.P50, P99: result.P99, CPU: result.CPU + postgres, Service: result.CPU, Postgres: postgres,
		WAL: float64(used.wal) / float64(done), Note: note + "service and client together",
	})
	return nil
}

// departed returns when the server's processes for a peer have ended and been collected: what one that is just ending has used is seen
// neither with it nor with the one that started it.
func (w *world) departed(ctx context.Context, database string) error {
	for {
		var left int
		if err := w.db.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1", database).Scan(&left); err != nil {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil || left == 0 {
			return err
		}
	}
}

// warmUp is how many workflows the peer runs before it counts.
const warmUp = 100
