package simulated_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/e2e/measure"
	"github.com/lockstep-cd/lockstep/tools/e2e/scenario"
	"github.com/lockstep-cd/lockstep/tools/e2e/simulated"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// TestMain lets the stack start its parts from this executable.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(cli.Main("test", os.Args[1:]))
	}
	os.Exit(m.Run())
}

// limit bounds all scenarios, on a small busy machine. It is reached only if one fails.
const limit = 15 * time.Minute

// atOnce is how many undisturbing scenarios run concurrently. They mostly wait: for polls, for soaks, for the cluster.
const atOnce = 8

// TestScenarios runs on simulated controllers what `make e2e` runs on real ones. Undisturbing scenarios share a stack. The others use two
// stacks, on each of which they run one after the other: a stack starts quickly, and waiting costs nothing.
func TestScenarios(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute or more")
	}
	all, err := scenario.Load("../scenarios")
	if err != nil {
		t.Fatal(err)
	}
	together := make(chan func(*scenario.Place), len(all))
	alone := make(chan func(*scenario.Place), len(all)+1)
	alone <- func(place *scenario.Place) {
		t.Run("a watch costs no request for each poll", func(t *testing.T) { standing(t, place) })
	}
	for _, s := range all {
		// The simulated cluster measures nothing, has no Argo Server and no Flux, and knows no schemas.
		if s.Metrics || s.Workflows || s.Flux || s.Applies {
			continue
		}
		queue := together
		if s.Alone() {
			queue = alone
		}
		queue <- func(place *scenario.Place) { t.Run(s.Name, func(t *testing.T) { play(t, place, s) }) }
	}
	close(together)
	close(alone)

	// In goroutines, not as parallel tests, whose number depends on the processors.
	var players sync.WaitGroup
	shared, first, second := start(t), start(t), start(t)
	for range atOnce {
		players.Go(func() { playAll(shared, together) })
	}
	for _, place := range []*scenario.Place{first, second} { //nolint:paralleltest // runs no tests of its own: the queue does
		players.Go(func() { playAll(place, alone) })
	}
	players.Wait()
}

// playAll runs the remaining scenarios on one stack.
func playAll(place *scenario.Place, queue <-chan func(*scenario.Place)) {
	for next := range queue {
		next(place)
	}
}

// standing keeps rollouts at a gate for a while, and counts the relay's requests to the API server: per rollout one read at every tenth
// poll, and the few before its watch works (D20).
func standing(t *testing.T, place *scenario.Place) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, ok := place.Cluster.(*simulated.Cluster)
	if !ok {
		t.Fatal("expected a simulated cluster")
	}
	const rollouts, poll = 6, 1
	asked, took, err := measure.Standing(ctx, place, rollouts, poll, 10*time.Second, c.Requests)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range asked {
		sum += n
	}
	if most := rollouts * (3 + int(took/(10*time.Second))); sum > most {
		t.Errorf("found %d requests in %s (%v), expected %d at most for %d rollouts", sum, took, asked, most, rollouts)
	}
	t.Logf("%d rollouts at a gate for %s: %d requests to the API server; polls would have been %d", rollouts, took, sum,
		rollouts*int(took/time.Second))
}

func play(t *testing.T, place *scenario.Place, s scenario.Scenario) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := place.Run(ctx, s); err != nil {
		t.Errorf("%s: %v", s.About, err)
	}
}

// start starts a stack with its simulated cluster.
func start(t *testing.T) *scenario.Place {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	s, err := stack.Start(ctx, stack.Config{Dir: t.TempDir(), DatabaseURL: pgtest.URL(t), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Stop(), s.Discard(context.WithoutCancel(ctx))); err != nil {
			t.Error(err)
		}
	})
	c, err := simulated.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return &scenario.Place{Stack: s, Cluster: c, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}
}
