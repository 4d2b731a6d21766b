package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// disturbFor is how long the rollouts of one round are disturbed: after that they have to end.
const disturbFor = 20 * time.Second

// approval is the gate that a person has to pass in each rollout.
const approval = "release"

// TestChaos has rollouts in flight while whatever a stack is made of is killed, stalled and emptied at random, by a seed that it
// prints: services, NATS and its streams, the cluster, Git, PostgreSQL. In the end everything has to be as if nothing had happened: each
// rollout completed, each gate passed once and together, one commit for each environment, one approval, by a known person, and a
// journal from which every state can be rebuilt. Beside them a hostile driver tries to change its environment without a passage: nothing
// leaves the engine, and its rollout fails as a breach (D46).
//
// LOCKSTEP_CHAOS is the number of rounds, or for how long rounds are started ("60m"); without it the test is skipped, since `make chaos`
// runs it alone. LOCKSTEP_CHAOS_TOGETHER is the number of rollouts in flight in each. LOCKSTEP_CHAOS_SEED repeats a run, as far as
// processes can be made to.
//
//nolint:tparallel // its rounds come one after the other
func TestChaos(t *testing.T) {
	t.Parallel()
	bound := os.Getenv("LOCKSTEP_CHAOS")
	rounds, notRounds := strconv.Atoi(bound)
	duration, notDuration := time.ParseDuration(bound)
	if notRounds != nil && notDuration != nil || rounds+int(duration) < 1 {
		t.Skip("LOCKSTEP_CHAOS, a number of rounds or a duration, is not set; `make chaos` sets it")
	}
	seed := number(t, "LOCKSTEP_CHAOS_SEED", rand.Uint64()) //nolint:gosec // it is printed
	together := int(number(t, "LOCKSTEP_CHAOS_TOGETHER", 3))
	t.Logf("LOCKSTEP_CHAOS_SEED=%d LOCKSTEP_CHAOS_TOGETHER=%d", seed, together)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // faults need no secrecy
	done := map[string]int{}
	end := clock.System().Now().Add(duration)
	completed, round, faults := 0, 0, 0
	for more := true; more; {
		round++
		// A stack of its own for each, gone before the next: what one leaves behind is not the next one's trouble, and a run may be as
		// long as it likes.
		t.Run(strconv.Itoa(round), func(t *testing.T) { completed += chaos(t, random, together, done) })
		more = round < rounds || clock.System().Now().Before(end)
	}
	for _, n := range done {
		faults += n
	}
	t.Logf("%d rollouts completed in %d rounds, through %d faults: %v", completed, round, faults, done)
	if least := 3 * round; faults < least {
		t.Errorf("%d faults, want at least %d: the rollouts were hardly disturbed", faults, least)
	}
}

// number reads a number from the environment.
func number(t *testing.T, name string, unset uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// chaos is one round: rollouts of as many applications, in flight together on one stack. It answers how many completed as they have to.
func chaos(t *testing.T, random *rand.Rand, together int, done map[string]int) (completed int) {
	t.Helper()
	dir := t.TempDir()
	// Else the account that runs PostgreSQL in place of root could not reach it, and the data would be put elsewhere, to stay.
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	// Not Fast: PostgreSQL crashes, and what it has confirmed must not be lost by its own doing.
	ctx, first := startIn(t, stack.Config{Dir: dir, Environment: []string{hostileDriver(t)}}, chaosScenario(1))
	worlds := []*world{first}
	for i := 2; i <= together; i++ {
		worlds = append(worlds, first.beside(chaosScenario(i)))
	}
	if err := first.CreateEnvironments(ctx); err != nil {
		t.Fatal(err)
	}
	next := make([]client.VersionSet, together)
	each(t, worlds, func(i int, w *world) error {
		set, err := w.release(ctx)
		next[i] = set
		return err
	})
	hostile := first.hostileBeside()
	trap, err := hostile.prepareHostile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	disturbing, calm := context.WithCancel(ctx)
	disturbed := make(chan error, 1)
	go func() { disturbed <- first.disturb(disturbing, random, done) }()
	trespassed := make(chan error, 1)
	go func() {
		_, err := hostile.trespasses(ctx, trap)
		trespassed <- err
	}()
	rollouts := make([]client.Rollout, together)
	each(t, worlds, func(i int, w *world) error {
		r, err := w.promote(ctx, t.Name(), next[i], nil)
		rollouts[i] = r
		if err != nil {
			var rows strings.Builder
			_ = journal.Table(&rows, r) // nothing fails in memory
			return fmt.Errorf("%w\n%s", err, rows.String())
		}
		return nil
	})
	calm()
	for what, ended := range map[string]chan error{"the faults": disturbed, "the hostile driver": trespassed} {
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, w := range worlds {
		w.expectAllGates(t, rollouts[i])
		if err := expectPrincipals(rollouts[i]); err != nil {
			t.Error(err)
		}
	}
	check, err := first.API.CheckJournal(ctx, func(client.JournalCheck) {})
	breaches := len(check.Differences)
	check.Differences = slices.DeleteFunc(check.Differences, func(d client.JournalDifference) bool {
		return strings.Contains(d.Problem, "breach: ")
	})
	breaches -= len(check.Differences)
	if all := 2*together + 1; err != nil || len(check.Differences) > 0 || check.Rollouts != all || breaches != 1 {
		t.Errorf("the journal: got %+v, %v, %d breaches; want no differences in %d rollouts, except for the hostile one's", check, err, breaches, all)
	}
	if !t.Failed() {
		completed = together
	}
	return completed
}

// chaosScenario is a small application, with an approval before its only environment, which it shares with all others.
func chaosScenario(i int) demo.Scenario {
	s := oneStage()
	s.Application = fmt.Sprintf("shop-%d", i)
	s.Stages[0].Gates, s.Stages[0].Soak = []int{25, 50, 75, 100}, 1 // long enough for faults to meet them
	s.Stages[0].Approval, s.Stages[0].ApprovalReason = approval, "the change is agreed"
	return s
}

// beside is another application on the same stack.
func (w *world) beside(scenario demo.Scenario) *world {
	other := &world{World: demo.NewWorld(w.stack, scenario, clock.System()), stack: w.stack}
	other.Patience, other.watcher = w.Patience, demo.NewWatcher(other.World, nil)
	return other
}

// release makes an application whose first version is deployed, and answers its second, which is not.
func (w *world) release(ctx context.Context) (second client.VersionSet, err error) {
	for _, step := range []func(context.Context) error{w.CreateRepository, w.CreateApplication, w.CreatePipeline} {
		if err := step(ctx); err != nil {
			return second, err
		}
	}
	set, err := w.Push(ctx, "1.0.0", nil)
	if err != nil {
		return second, err
	}
	if _, err := w.promote(ctx, "first", set, nil); err != nil {
		return second, err
	}
	return w.Push(ctx, "2.0.0", nil)
}

// each does something with every world at once, and ends the test when it went wrong with one.
func each(t *testing.T, worlds []*world, do func(i int, w *world) error) {
	t.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(worlds))
	for i, w := range worlds {
		all.Go(func() { errs[i] = do(i, w) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// expectPrincipals checks that every row of a journal has a principal, and that the approval was given once, by a person.
func expectPrincipals(r client.Rollout) error {
	var verbs []string
	for _, row := range r.Journal {
		if row.ToState == "" || row.PrincipalType == "" {
			return fmt.Errorf("%s: a row of the journal has no state, or nobody who did it: %+v", r.ID, row)
		}
		if row.GateID != approval {
			continue
		}
		verbs = append(verbs, row.Event)
		if row.Event == "approve" && row.PrincipalID == 0 {
			return fmt.Errorf("%s: approved by nobody who is known: %+v", r.ID, row)
		}
	}
	if got, want := strings.Join(verbs, " "), "request_passage request_approval approve pass_gate"; got != want {
		return fmt.Errorf("%s: journal of gate %q: got %q, want %q", r.ID, approval, got, want)
	}
	return nil
}
