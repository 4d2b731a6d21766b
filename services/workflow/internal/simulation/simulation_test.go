package simulation_test

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/simulation"
)

// `make simulate SEEDS=100000` and `make simulate FOR=3m` set the first two; a seed that has failed is run again with
// `go test ./services/workflow/internal/simulation -seed N -v`.
var (
	seeds  = flag.Int("seeds", 400, "how many seeds to simulate")
	atMost = flag.Duration("for", 0, "stop after this time, whatever -seeds is; 0: no limit")
	one    = flag.Int64("seed", -1, "the one seed to simulate, with a trace")
)

// TestWhatGoesWrongChangesNothing simulates many seeds: whatever breaks, no history forks, every effect happens under one key,
// an event is consumed once, and every run ends with nothing of it left.
func TestWhatGoesWrongChangesNothing(t *testing.T) {
	t.Parallel()
	if *one >= 0 {
		r := simulation.Simulate(t, uint64(*one), simulation.None)
		t.Logf("%s\n%s", strings.Join(r.Programs, "\n"), strings.Join(r.Trace, "\n"))
		report(t, uint64(*one), r)
		return
	}
	var next, steps, kills, ambiguous atomic.Int64
	began := clock.System().Now()
	late := func() bool { return *atMost > 0 && clock.System().Now().Sub(began) > *atMost }
	t.Cleanup(func() {
		t.Logf("%d seeds in %s: %d steps, %d processes ended, %d calls applied whose caller saw an error",
			min(next.Load(), int64(*seeds)), clock.System().Now().Sub(began).Round(time.Millisecond), steps.Load(), kills.Load(), ambiguous.Load())
		if kills.Load() == 0 || ambiguous.Load() == 0 {
			t.Error("hardly anything went wrong")
		}
	})
	for worker := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
			t.Parallel()
			for seed := next.Add(1) - 1; seed < int64(*seeds) && !late() && !t.Failed(); seed = next.Add(1) - 1 {
				r := simulation.Simulate(t, uint64(seed), simulation.None)
				steps.Add(int64(r.Steps))
				kills.Add(int64(r.Kills))
				ambiguous.Add(int64(r.Ambiguous))
				report(t, uint64(seed), r)
			}
		})
	}
}

func report(t *testing.T, seed uint64, r simulation.Result) {
	t.Helper()
	if len(r.Violations) > 0 {
		t.Errorf("seed %d, which -seed %d repeats with its trace: after %d steps\n%s", seed, seed, r.Steps, strings.Join(r.Violations, "\n"))
	}
}

// TestTheSeedDecidesEverything runs seeds twice: the trace of all decisions is the same. What is left to chance among several hundred other
// seeds is whether the claim loop looks before or after a run that parks in the same step has freed its place.
func TestTheSeedDecidesEverything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		first, second := simulation.Simulate(t, seed, simulation.None), simulation.Simulate(t, seed, simulation.None)
		if slices.Equal(first.Trace, second.Trace) {
			continue
		}
		for i := range first.Trace {
			if i >= len(second.Trace) || first.Trace[i] != second.Trace[i] {
				t.Fatalf("seed %d: decision %d was %q and then %q", seed, i, first.Trace[i], second.Trace[min(i, len(second.Trace)-1)])
			}
		}
		t.Fatalf("seed %d: the second run continues with %q", seed, second.Trace[len(first.Trace):])
	}
}

// TestASimulationFindsWhatIsBroken breaks one rule of the store, or of the machine, after the other. Each has to be found
// within a few hundred seeds, or what the simulation says about the rest is worth nothing.
func TestASimulationFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	const enough = 100
	for name, broken := range map[string]struct {
		defect simulation.Defect
		want   string
	}{
		"no fence":                     {simulation.NoFence, "the history forks"},
		"parks blindly":                {simulation.ParksBlindly, "is parked, and"},
		"forgets early events":         {simulation.ForgetsEarlyEvents, "was not given event"},
		"counts duplicates":            {simulation.CountsDuplicates, "is consumed twice"},
		"trusts every source":          {simulation.TrustsEverySource, "is forged"},
		"closes too much":              {simulation.ClosesTooMuch, "waits for nothing"},
		"leaves timers":                {simulation.LeavesTimers, "things of it are left"},
		"emits twice":                  {simulation.EmitsTwice, "2 times"},
		"forgets children":             {simulation.ForgetsChildren, "not all runs have ended"},
		"repeats handles":              {simulation.RepeatsHandles, "was asked for"},
		"a replay leaves out an entry": {simulation.ReplaysShort, "is recorded twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []string
			for seed := range uint64(enough) {
				r := simulation.Simulate(t, seed, broken.defect)
				for _, v := range r.Violations {
					if strings.Contains(v, broken.want) {
						t.Logf("found by seed %d: %s", seed, v)
						return
					}
				}
				all = append(all, r.Violations...)
			}
			t.Errorf("not found by %d seeds, which found %q", enough, all)
		})
	}
}

// TestLeasesSaveWorkAndNothingElse has every process take whatever runs, leases or not: it costs work, and nothing goes wrong
// (package engine).
func TestLeasesSaveWorkAndNothingElse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		report(t, seed, simulation.Simulate(t, seed, simulation.StealsExecutions))
	}
}

// TestAnOutageIsWaitedOut takes the store away for 30 seconds from processes at work. They ask for it now and then, the lookout and
// each run about once every poll of a second, and when it is back everything comes to its end.
func TestAnOutageIsWaitedOut(t *testing.T) {
	t.Parallel()
	const outage = 30 * time.Second
	for seed := range uint64(30) {
		r, attempts, processes := simulation.Outage(t, seed, outage)
		report(t, seed, r)
		// The lookout and at most two runs ask once a second, claims are polled after each of these; and a few calls were in flight.
		if most := processes * (int(outage/time.Second)*5 + 10); attempts > most || attempts == 0 {
			t.Errorf("seed %d: %d processes asked %d times within %s, expected some, and at most %d", seed, processes, attempts, outage, most)
		}
	}
}

// TestWhatKillsIsQuarantinedAndNothingElse has a run kill its processes: two of them die, two more while they try it alone, and the run is
// set aside. The other runs of the same processes all continue.
func TestWhatKillsIsQuarantinedAndNothingElse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r, kills, ends := simulation.Poison(t, seed)
		report(t, seed, r)
		// A process whose clock is wrong may take it from one that lives, which counts like a death.
		if ends["poison"] != execution.Quarantined || kills < 3 || kills > 4 {
			t.Errorf("seed %d: the poison is %s after %d deaths, expected quarantined after 4", seed, ends["poison"], kills)
		}
		for name, state := range ends {
			if name != "poison" && state == execution.Quarantined {
				t.Errorf("seed %d: %s did nothing and is quarantined", seed, name)
			}
		}
	}
}

// TestProgramsUseEveryOperation compares what the programs of many seeds call with what the interpreter offers (issue 18).
func TestProgramsUseEveryOperation(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	for seed := range uint64(200) {
		for _, source := range simulation.Programs(seed) {
			sources.WriteString(source)
		}
	}
	for _, operation := range []string{
		"run(", "poll(", "sleep(", "wait_for_event(", "spawn(", "gather(", "channel(", "receive(", "inbox(", "reply(", "attempt(", "defer(",
		"on_cancel(", "start_workflow(", "await_workflow(", "detached = True", "id = 'k", "set_status(", "patched(", "continue_with(", "now()",
		"uuid()", "random()", "print(", "'emit'", "'checkpoint'",
	} {
		if !strings.Contains(sources.String(), operation) {
			t.Errorf("no program has %s", operation)
		}
	}
}

// TestManySeedsHaveBorders shows that generations end in simulations while things go wrong, and that messages and events are
// received behind the border that were sent before it.
func TestManySeedsHaveBorders(t *testing.T) {
	t.Parallel()
	borders, carried, begun, answered := 0, 0, 0, 0
	changed, old := 0, 0
	for seed := range uint64(60) {
		r := simulation.Simulate(t, seed, simulation.None)
		report(t, seed, r)
		borders, carried, begun, answered = borders+r.Borders, carried+r.Carried, begun+r.Begun, answered+r.Answered
		changed, old = changed+r.Changed, old+r.Old
	}
	if changed == 0 || old == 0 {
		t.Errorf("%d runs were given another program, and %d old sides of its changes were taken, expected some of each", changed, old)
	}
	if answered == 0 {
		t.Error("no call was answered")
	}
	if borders == 0 || carried == 0 {
		t.Errorf("%d generations have ended, and %d messages of one were received in a later one, expected some of each", borders, carried)
	}
	if begun == 0 {
		t.Error("no run was stored with its first turn")
	}
	t.Logf("%d borders, %d messages carried over, %d runs stored with their first turn, %d calls answered, %d programs changed, %d old sides",
		borders, carried, begun, answered, changed, old)
}
