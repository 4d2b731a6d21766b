package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// rounds runs rounds of due work: at once when it is woken, and periodically for work left by other processes and for work that has become
// due.
type rounds struct {
	clock clock.Clock
	idle  time.Duration
	// full is the batch size of one round; a full round is followed by the next at once.
	full int
	wake chan struct{}
}

func newRounds(c clock.Clock, idle time.Duration, full int) rounds {
	return rounds{clock: c, idle: idle, full: full, wake: make(chan struct{}, 1)}
}

// Wake reports that work has become due.
func (r rounds) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run runs rounds until ctx ends. Errors of a round are passed to failed.
func (r rounds) run(ctx context.Context, round func(ctx context.Context, now time.Time) (int, error), failed func(error)) {
	for {
		n, err := round(ctx, r.clock.Now())
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		// After an error it pauses as well, so as not to hammer an unreachable database.
		if n == r.full && err == nil {
			continue
		}
		timer := r.clock.NewTimer(r.idle)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.wake:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// each calls fn for all, several concurrently.
func each[T any](all []T, atOnce int, fn func(T) error) error {
	var (
		group  sync.WaitGroup
		errs   = make([]error, len(all))
		places = make(chan struct{}, atOnce)
	)
	for i, item := range all {
		// Taken before the goroutine starts, so that there are never more of them than places.
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			errs[i] = fn(item)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
