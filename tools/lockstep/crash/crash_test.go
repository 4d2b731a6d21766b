package crash

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// TestMain is also what the stack starts as its child processes, `<this binary> serve PART …`, and the command line for those who ask.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" || os.Getenv("LOCKSTEP_TEST_AS_COMMAND") != "" {
		os.Exit(cli.Main("test", os.Args[1:]))
	}
	os.Exit(m.Run())
}

// limit bounds one test: two run at a time on a small machine that does other things as well. It is reached only when one fails.
const limit = 10 * time.Minute

// world is a stack with a scenario that is ready to be deployed to.
type world struct {
	*demo.World

	stack   *stack.Stack
	watcher *demo.Watcher
}

// setup brings a stack up with a scenario on it, whose first version has been deployed.
func setup(t *testing.T, scenario demo.Scenario) (context.Context, *world) {
	t.Helper()
	ctx, w := start(t, scenario)
	if err := w.Create(ctx); err != nil {
		t.Fatal(err)
	}
	set, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.roll(ctx, t, set, nil)
	return ctx, w
}

// start brings an empty stack up; environment is its processes', beside the test's own.
func start(t *testing.T, scenario demo.Scenario, environment ...string) (context.Context, *world) {
	t.Helper()
	return startIn(t, stack.Config{Dir: t.TempDir(), DatabaseURL: pgtest.URL(t), Fast: true, Environment: environment}, scenario)
}

// startIn is start with the stack as config has it.
func startIn(t *testing.T, config stack.Config, scenario demo.Scenario) (context.Context, *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	s, err := stack.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, part := range stack.Parts() {
			text, err := os.ReadFile(s.LogFile(part))
			if err != nil {
				t.Error(err)
			}
			// The supervisor would start the process again, and nobody would see.
			for _, trouble := range []string{"DATA RACE", "\npanic: ", "\nfatal error: "} {
				if strings.Contains(string(text), trouble) {
					t.Errorf("the log of %s has %q:\n%s", part, trouble, text)
				}
			}
		}
		if t.Failed() {
			for _, part := range stack.Parts() {
				t.Log(s.LogTail(part, 15, func(line string) bool { return !strings.Contains(line, `"level":"INFO"`) }))
			}
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := s.Discard(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	w := &world{World: demo.NewWorld(s, scenario, clock.System()), stack: s}
	w.Patience = limit
	w.watcher = demo.NewWatcher(w.World, nil)
	return ctx, w
}

// roll promotes a version set to its end while disturb disturbs, and checks that everything is as if nothing had been: completed, every
// gate passed once and together, one commit for each environment. disturb may be nil.
func (w *world) roll(
	ctx context.Context, t *testing.T, set client.VersionSet, disturb func(context.Context, client.Rollout) error,
) client.Rollout {
	t.Helper()
	r, err := w.promote(ctx, t.Name(), set, disturb)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// promote is roll for those who have several under way at a time: everything that is wrong is its error.
func (w *world) promote(
	ctx context.Context, reason string, set client.VersionSet, disturb func(context.Context, client.Rollout) error,
) (client.Rollout, error) {
	before, err := w.Commits(ctx)
	if err != nil {
		return client.Rollout{}, err
	}
	digests := map[string]string{}
	for _, e := range set.Entries {
		digests[e.Service.Name] = e.Version.Digest
	}
	w.watcher.Expect(digests)
	var r client.Rollout
	err = w.watcher.During(ctx, func(ctx context.Context) error {
		created, err := w.Roll(ctx, set.ID, reason)
		if err != nil {
			return err
		}
		disturbed := make(chan error, 1)
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			late := errors.New("the disturbance did not come to its end")
			defer func() { disturbed <- late }() // even if it ends the test, and with that this goroutine
			if disturb == nil {
				late = nil
				return
			}
			late = disturb(within, created)
		}()
		r, err = w.Follow(ctx, created.ID, demo.Hooks{})
		cancel()
		if late := <-disturbed; err == nil {
			err = late
		}
		return err
	})
	if err != nil {
		return r, err
	}
	wrong := []error{demo.ExpectState(r, "COMPLETED", nil)}
	want := map[string]int{}
	for _, stage := range w.Scenario.Stages {
		want[stage.Environment] = 1
		wrong = append(wrong, w.ExpectHealthy(ctx, stage, set))
	}
	return r, errors.Join(append(wrong, w.ExpectCommits(ctx, before, want))...)
}

// expectAllGates checks, in the journal and in the cluster, that every service went through the whole canary.
func (w *world) expectAllGates(t *testing.T, r client.Rollout) {
	t.Helper()
	if err := w.ExpectGates(r); err != nil {
		t.Error(err)
	}
	for _, stage := range w.Scenario.Stages {
		for _, service := range w.Scenario.Services {
			if got, want := w.watcher.Highest(stage.Environment, service), stage.Gates[len(stage.Gates)-1]; got < want {
				t.Errorf("cluster: %s/%s was seen past gate %d, want all up to %d", stage.Environment, service, got, want)
			}
		}
	}
}

// oneStage is a short scenario: one environment, two gates.
func oneStage() demo.Scenario {
	s := demo.Story()
	s.Stages = s.Stages[:1]
	s.Stages[0].Gates = []int{50, 100}
	s.PollInterval = 0.5
	s.Config = map[string]any{"deadline": int(limit.Seconds())} // a machine on which everything is slow is no reason to fail
	return s
}

// ended reports that a disturbance was cut short because the rollout is over.
func ended(ctx context.Context) bool { return ctx.Err() != nil }
