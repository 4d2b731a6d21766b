package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
)

const (
	// beatEvery is the pause between two heartbeats of an agent, as relays have it by default.
	beatEvery = 5 * time.Second
	// beatFor is how long heartbeats are measured.
	beatFor = time.Minute
	// beatLate is from when on a service takes an agent for offline.
	beatLate = 20 * time.Second
)

// beats is what simulated agents do: each has a connection of its own, and sends a heartbeat every few seconds.
type beats struct {
	world *world
	conns []*bus.Conn

	sent, failed atomic.Int64
}

// connect connects n agents, some at a time.
func (b *beats) connect(ctx context.Context, n int) error {
	b.conns = make([]*bus.Conn, n)
	var next atomic.Int64
	var connecting sync.WaitGroup
	failures := make([]error, 16)
	for worker := range failures {
		connecting.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				user := bus.RelayUser(int64(i + 1))
				conn, err := bus.Connect(ctx, bus.Config{URL: b.world.nats.URL(), User: user, Password: user, Name: user}, b.world.log)
				if err != nil {
					failures[worker] = fmt.Errorf("connect agent %d: %w", i+1, err)
					return
				}
				b.conns[i] = conn
			}
		})
	}
	connecting.Wait()
	return errors.Join(failures...)
}

func (b *beats) close() {
	for _, conn := range b.conns {
		if conn != nil {
			conn.Close()
		}
	}
}

// beat sends the heartbeats of one agent until ctx ends. The agents begin one after the other, so that they do not all report at once.
func (b *beats) beat(ctx context.Context, i int) {
	if pause(ctx, beatEvery*time.Duration(i)/time.Duration(len(b.conns))) != nil {
		return
	}
	started := now().UTC().Format(time.RFC3339Nano)
	for {
		at := now()
		e, err := event.New(event.Header{ID: id.New(at), Source: fmt.Sprintf("/agents/%d", i+1), Time: at}, event.AgentHeartbeat{
			AgentID: int64(i + 1), Version: "bench", ClusterReachable: true, StartedAt: started, ObservedAt: at.UTC().Format(time.RFC3339Nano),
		})
		if err == nil {
			within, cancel := context.WithTimeout(ctx, beatEvery)
			err = b.conns[i].Publish(within, e)
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
		if b.sent.Add(1); err != nil {
			b.failed.Add(1)
		}
		if pause(ctx, beatEvery-now().Sub(at)) != nil {
			return
		}
	}
}

// standing is what the service knows of the agents: how many there are, and for how many it has had no heartbeat for too long.
func (b *beats) standing(ctx context.Context) (known, late int, err error) {
	err = b.world.db.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE seen_at < $1) FROM workflow.agent", now().Add(-beatLate)).Scan(&known, &late)
	return known, late, err
}

// agents is B23: what the heartbeats of many agents cost, each of which has a connection of its own, and that none is taken for offline.
func agents(ctx context.Context, w *world, r *report) error {
	b := &beats{world: w}
	defer b.close()
	n := w.scaled(10_000)
	if err := w.withRelays(ctx, n); err != nil {
		return err
	}
	if err := b.connect(ctx, n); err != nil {
		return err
	}
	beating, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for i := range b.conns {
		all.Go(func() { b.beat(beating, i) })
	}
	for began := now(); ; {
		known, _, err := b.standing(ctx)
		if err != nil {
			return err
		}
		if known == n {
			break
		}
		if now().Sub(began) > 2*time.Minute {
			return fmt.Errorf("found heartbeats of %d agents after two minutes, expected those of %d", known, n)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	sent, failed := b.sent.Load(), b.failed.Load()
	before, err := w.usage(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, beatFor); err != nil {
		return err
	}
	after, err := w.usage(ctx)
	if err != nil {
		return err
	}
	sent, failed = b.sent.Load()-sent, b.failed.Load()-failed
	_, late, err := b.standing(ctx)
	if err != nil {
		return err
	}
	used := after.since(before)
	m := row{Scenario: "heartbeats", Engine: "lockstep", N: int(sent), Unit: fmt.Sprintf("of %d agents", n), PerSecond: float64(sent) / beatFor.Seconds()}
	m = m.used(used, int(sent))
	m.Note = fmt.Sprintf("%d were not taken by the bus in time; %d agents would count as offline; %s", failed, late, idleOf(used, beatFor))
	r.add(m)
	return nil
}
