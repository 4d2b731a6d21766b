package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// rounds does what is due, round after round: at once when it is woken, and every so often for what other processes left
// and for what has come due by time.
type rounds struct {
	clock clock.Clock
	idle  time.Duration
	// full is as much as one round does; after that many, there is more.
	full int
	wake chan struct{}
}

func newRounds(c clock.Clock, idle time.Duration, full int) rounds {
	return rounds{clock: c, idle: idle, full: full, wake: make(chan struct{}, 1)}
}

// Wake says that something has become due.
func (r rounds) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run does rounds until ctx ends. What a round fails with is told to failed.
func (r rounds) run(ctx context.Context, round func(ctx context.Context, now time.Time) (int, error), failed func(error)) {
	for {
		n, err := round(ctx, r.clock.Now())
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		// After an error there is a pause even so, or a database that is away would be hammered.
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

// each does fn for all, several at a time.
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
