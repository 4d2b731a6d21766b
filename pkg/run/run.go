// Package run starts the parts of a process in order, stops them in reverse, and turns signals and errors into an exit code. Everything
// that it started has ended when it returns.
//
// It is not a supervisor: when a part fails, it is not restarted, and the process ends.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// A Part is one thing that runs for as long as the process does: a server, a consumer, a loop.
type Part struct {
	// Name identifies the part in logs and errors.
	Name string
	// Run does the work until ctx ends, and calls ready once as soon as later parts may rely on this one. After ctx has ended, a returned
	// error counts only if it is not that of ctx. A part that returns nil without having called ready was a one-time job (a migration), and
	// later parts start. A part that was ready and returns without having been stopped has failed.
	Run func(ctx context.Context, ready func()) error
}

// Loop is a part that later parts need not wait for: it is ready as soon as it runs.
func Loop(name string, fn func(context.Context) error) Part {
	return Part{Name: name, Run: func(ctx context.Context, ready func()) error {
		ready()
		return fn(ctx)
	}}
}

// Parts starts each part after the one before it is ready, and waits until ctx ends or a part fails. Then it stops them in reverse order,
// each after the one behind it has ended, so that no part loses what it relies on. It returns the first failure, joined with failures to
// stop. Parts that still run after stopWithin are all cancelled at once; those that still run after another stopWithin are named in the
// error and left running.
func Parts(ctx context.Context, log *slog.Logger, stopWithin time.Duration, parts ...Part) error {
	g := &group{log: log, clock: clock.System(), failed: make(chan error, len(parts))}
	err := g.start(ctx, parts)
	if err == nil {
		err = g.wait(ctx)
	}
	return errors.Join(err, g.stop(context.WithoutCancel(ctx), stopWithin))
}

// group holds the parts started so far.
type group struct {
	log     *slog.Logger
	clock   clock.Clock
	running []*running
	failed  chan error // buffered for one error of each part
}

// running is a part that was started.
type running struct {
	name   string
	cancel context.CancelFunc
	ready  chan struct{}
	ended  chan struct{}
	// The fields below are valid once ended is closed.
	err    error
	failed bool // err came before the part was asked to stop, and was reported then
}

func (g *group) start(ctx context.Context, parts []Part) error {
	for _, p := range parts {
		r := g.launch(ctx, p)
		select {
		case <-r.ready:
			g.log.DebugContext(ctx, "part ready", telemetry.KeyPart, r.name)
		case err := <-g.failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// launch runs p in a context of its own, which keeps ctx's values but not its end: group decides the order of stopping.
func (g *group) launch(ctx context.Context, p Part) *running {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{name: p.Name, cancel: cancel, ready: make(chan struct{}), ended: make(chan struct{})}
	g.running = append(g.running, r)
	var once sync.Once
	wasReady := false
	ready := func() { once.Do(func() { wasReady = true; close(r.ready) }) }
	go func() {
		defer close(r.ended)
		err := p.Run(own, ready)
		asked := own.Err() != nil
		switch {
		case asked && (err == nil || errors.Is(err, context.Canceled)):
			return
		case err != nil:
			r.err = fmt.Errorf("%s: %w", p.Name, err)
		default:
			once.Do(func() { close(r.ready) }) // a finished job
			if !wasReady {
				return
			}
			r.err = fmt.Errorf("%s: ended without being asked to", p.Name)
		}
		if !asked {
			r.failed = true
			g.failed <- r.err
		}
	}()
	return r
}

// wait returns when ctx ends, a part fails, or every part was a job and has finished.
func (g *group) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		for _, r := range g.running {
			<-r.ended
		}
		close(done)
	}()
	select {
	case err := <-g.failed:
		return err
	case <-ctx.Done():
		return nil
	case <-done:
		select {
		case err := <-g.failed:
			return err
		default:
			return nil
		}
	}
}

// stop ends the parts in reverse. It returns the errors of stopping; wait has returned earlier ones.
func (g *group) stop(ctx context.Context, within time.Duration) error {
	orderly, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var errs []error
	for i := len(g.running) - 1; i >= 0; i-- {
		r := g.running[i]
		r.cancel()
		select {
		case <-r.ended:
			if r.err != nil && !r.failed {
				errs = append(errs, r.err)
			}
			g.log.DebugContext(ctx, "part stopped", telemetry.KeyPart, r.name)
		case <-orderly.Done():
		}
	}
	return errors.Join(append(errs, g.abandon(ctx, within))...)
}

// abandon waits once more for the late parts, all of which have been cancelled, and names those that still run.
func (g *group) abandon(ctx context.Context, within time.Duration) error {
	grace, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var late []string
	for _, r := range g.running {
		select {
		case <-r.ended:
		case <-grace.Done():
			if !closed(r.ended) {
				late = append(late, r.name)
			}
		}
	}
	if late == nil {
		return nil
	}
	return fmt.Errorf("stop: still running after %v: %s", 2*within, strings.Join(late, ", "))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
