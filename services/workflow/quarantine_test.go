package workflow_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// unreleased is the store of processes that never end in order: one that is stopped has died.
type unreleased struct{ Store }

func (unreleased) Release(context.Context, engine.Lease) error { return nil }

// mortal is a process that can be killed, with the test's clock.
type mortal struct {
	*engines
	wall  *steppedClock
	begun chan struct{}
	stop  func()
	// release lets the Function end.
	release atomic.Bool
}

// advance moves the time on.
func (p *mortal) advance(d time.Duration) {
	at := p.wall.Now().Add(d)
	p.wall.now.Store(&at)
}

// TestBeingThereWhenAProcessDiesConvictsNobody kills a process every few seconds, independently of the run whose Function is in progress in
// it. However often that happens, the run continues afterwards. A run is quarantined if its process dies whenever it runs, and lives when
// it does not.
func TestBeingThereWhenAProcessDiesConvictsNobody(t *testing.T) {
	t.Parallel()
	boot := func(t *testing.T) *mortal {
		t.Helper()
		p := &mortal{engines: newEngines(t), wall: &steppedClock{}, begun: make(chan struct{}, 100)}
		at := clock.System().Now()
		p.wall.now.Store(&at)
		p.clock = p.wall
		return p
	}
	up := func(p *mortal) {
		p.stop = p.run("one", unreleased{p.store}, func(ctx context.Context, _ activity.Call) (any, error) {
			p.begun <- struct{}{}
			for !p.release.Load() && ctx.Err() == nil {
				_ = clock.Sleep(ctx, clock.System(), time.Millisecond)
			}
			return 1, ctx.Err()
		})
	}
	begins := func(p *mortal) bool {
		select {
		case <-p.begun:
			return true
		default:
			return false
		}
	}
	t.Run("killed by something else", func(t *testing.T) {
		t.Parallel()
		p := boot(t)
		p.start("run('act', {}, timeout = 1000000)")
		for range 10 {
			up(p)
			for range 3 {
				p.advance(2 * time.Second)
				_ = clock.Sleep(t.Context(), clock.System(), 50*time.Millisecond) // the loops look
			}
			p.stop()
			if w, err := p.store.Get(t.Context(), 1, "w"); err != nil || w.State == execution.Quarantined {
				t.Fatalf("it is in state %d: %s (%v)", w.State, w.Error, err)
			}
		}
		for begins(p) {
		}
		up(p)
		wait.For(t, "it is tried", func() bool { p.advance(time.Second); return begins(p) })
		p.release.Store(true)
		p.await(execution.Completed)
	})
	t.Run("killed by it", func(t *testing.T) {
		t.Parallel()
		p := boot(t)
		p.start("run('act', {}, timeout = 1000000)")
		deaths := 0
		quarantined := func() bool {
			w, err := p.store.Get(t.Context(), 1, "w")
			return err == nil && w.State == execution.Quarantined
		}
		for !quarantined() && deaths < 10 {
			up(p)
			died := false
			wait.For(t, "it is tried or set aside", func() bool {
				p.advance(time.Second)
				died = begins(p)
				return died || quarantined()
			})
			p.stop()
			if died {
				deaths++
			}
		}
		if deaths != 4 || !quarantined() {
			t.Errorf("%d processes died, quarantined: %t; expected 4, and then it is", deaths, quarantined())
		}
	})
}
