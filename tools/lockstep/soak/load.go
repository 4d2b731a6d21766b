package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// options are what the command line says.
type options struct {
	lasting, pace, sampling time.Duration
	applications            int
	// dir keeps the stack.
	dir string
	// database is a server to use; empty for the stack's own.
	database string
}

// patience is how long a rollout may take: a machine that does other things as well is slow, and how long anything takes is not judged.
const patience = 15 * time.Minute

// soak starts rollouts for the given time, samples meanwhile, and judges.
func soak(ctx context.Context, o options) (r report, err error) {
	s, err := stack.Start(ctx, stack.Config{Dir: o.dir, DatabaseURL: o.database, Fast: true})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Stop(), s.Discard(context.WithoutCancel(ctx))) }()
	worlds, err := worlds(ctx, s, o.applications)
	if err != nil {
		return r, err
	}
	m, err := newMeter(ctx, s)
	if err != nil {
		return r, err
	}
	defer m.close(context.WithoutCancel(ctx))
	began := clock.System().Now()
	rolling, stop := context.WithCancel(ctx)
	defer stop()
	sampled := make(chan error, 1)
	go func() {
		defer stop() // rollouts that nobody looks at are of no use
		for clock.Sleep(rolling, clock.System(), o.sampling) == nil {
			// Not cut off when the last rollout ends: that would close the meter's connections in the middle of a question.
			if err := m.sample(ctx, clock.System().Now().Sub(began)); err != nil {
				sampled <- err
				return
			}
		}
		sampled <- nil
	}()
	completed, err := steady(rolling, worlds, o)
	stop()
	if err := errors.Join(err, <-sampled, ctx.Err()); err != nil {
		return r, err
	}
	// Once more, when nothing is under way: queues are empty now.
	if err := m.sample(ctx, clock.System().Now().Sub(began)); err != nil {
		return r, err
	}
	r = report{Lasted: clock.System().Now().Sub(began).Seconds(), Rollouts: completed, Series: m.judge()}
	r.Samples = m.samples
	return r, nil
}

// worlds makes applications whose first version is deployed.
func worlds(ctx context.Context, s *stack.Stack, n int) ([]*demo.World, error) {
	all := make([]*demo.World, n)
	for i := range all {
		scenario := demo.Story()
		scenario.Application = fmt.Sprintf("shop-%d", i+1)
		scenario.Stages = scenario.Stages[:1]
		scenario.Stages[0].Gates = []int{50, 100}
		scenario.Config = map[string]any{"deadline": int(patience.Seconds())}
		w := demo.NewWorld(s, scenario, clock.System())
		w.Interval, w.Patience = time.Second, patience
		all[i] = w
		steps := []func(context.Context) error{w.CreateRepository, w.CreateApplication, w.CreateEnvironments, w.CreatePipeline}
		if i > 0 { // the environment is everybody's
			steps = append(steps[:2], w.CreatePipeline)
		}
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return nil, err
			}
		}
		if err := release(ctx, w, 0); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// steady begins a rollout at each beat, of one application after the other, until the time is over, and waits for the last ones. An
// application whose rollout is still under way when its turn comes is waited for: a slow machine does less.
func steady(ctx context.Context, worlds []*demo.World, o options) (completed int, err error) {
	end := clock.System().Now().Add(o.lasting)
	turns := make([]chan struct{}, len(worlds))
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
	}
	rollouts, ctx := errgroup.WithContext(ctx)
	for n := 1; clock.System().Now().Before(end); n++ {
		turn := turns[n%len(worlds)]
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return completed, rollouts.Wait()
		}
		completed++
		rollouts.Go(func() error {
			defer func() { <-turn }()
			return release(ctx, worlds[n%len(worlds)], n)
		})
		if err := clock.Sleep(ctx, clock.System(), o.pace); err != nil {
			break
		}
	}
	return completed, rollouts.Wait()
}

// release pushes a version and promotes it to its end, followed by a stream of the journal as a user of the console would.
func release(ctx context.Context, w *demo.World, n int) error {
	set, err := w.Push(ctx, fmt.Sprintf("1.0.%d", n), nil)
	if err != nil {
		return err
	}
	created, err := w.Roll(ctx, set.ID, "soak")
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() {
		watched <- w.API.FollowRollout(watching, created.ID, "", func() {}, func(string) error { return nil })
	}()
	r, err := w.Follow(ctx, created.ID, demo.Hooks{})
	stop()
	if streamErr := <-watched; streamErr != nil && !errors.Is(streamErr, context.Canceled) &&
		!fault.Is(streamErr, fault.Unavailable) && err == nil {
		err = streamErr
	}
	if err != nil {
		return err
	}
	return demo.ExpectState(r, "COMPLETED", nil)
}
