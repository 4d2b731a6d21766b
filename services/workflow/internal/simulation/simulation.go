package simulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// Result is what a simulation found.
type Result struct {
	// Violations are what must not be; the first is the cause, what comes after it may follow from it.
	Violations []string
	// Trace is what was decided, one line each: the same for the same seed.
	Trace []string
	// Programs are what was run.
	Programs []string
	// Steps, Kills and Ambiguous count decisions, ends of processes, and calls that were applied and said to have failed.
	Steps, Kills, Ambiguous int
	// Borders counts the generations that have ended with another one behind them, and Carried the messages that a run received in
	// a later generation than the one that made their channel.
	Borders, Carried int
	// Answered counts the calls that were answered to their callers.
	Answered int
	// Begun counts the runs that were stored with their first turn, Changed those that were given another program while they waited, and
	// Old the sides of patched that were taken before.
	Begun, Changed, Old int
}

// The engine's numbers in a simulation. Their ratios are those of the service; the time is virtual.
const (
	pollEvery = time.Second
	leaseFor  = 5 * time.Second
	// maxCrashes is how many deaths of its processes quarantine a run.
	maxCrashes = 3
)

// chances are how often things go wrong, in thousandths of the occasions. A seed draws them anew, so that among many seeds
// there are those in which only one thing ever goes wrong, and those in which everything does.
type chances struct {
	refuse, hide, kill, stall, drop, duplicate int
}

func draw(random *rand.Rand) chances {
	of := func(most int) int {
		switch random.IntN(3) {
		case 0:
			return 0
		case 1:
			return most / 5
		default:
			return most
		}
	}
	return chances{refuse: of(150), hide: of(250), kill: of(40), stall: of(30), drop: of(300), duplicate: of(500)}
}

// simulation is one run.
type simulation struct {
	t         *testing.T
	random    *rand.Rand
	chances   chances
	defect    Defect
	memory    *Memory
	gate      *gate
	world     *world
	names     []string
	processes []*process
	plans     []plan
	lives     map[string]int
	checker   checker
	result    Result
}

// chaosSteps and calmSteps bound the two parts of a simulation: in the first one things go wrong, in the second nothing does,
// and everything has to come to its end.
const (
	chaosSteps = 400
	calmSteps  = 20_000
)

// Simulate runs one simulation. All that it decides follows from the seed.
func Simulate(t *testing.T, seed uint64, defect Defect) (r Result) {
	t.Helper()
	within(t, seed, defect, func(s *simulation) {
		for range chaosSteps {
			if !s.step() {
				break
			}
			s.chaos()
		}
		r = s.settle()
	})
	return r
}

// Programs are those that a seed writes for one run.
func Programs(seed uint64) []string {
	pl := write(rand.New(rand.NewPCG(seed, 1)), "w1", []string{"w1", "w2"}) //nolint:gosec // seeded on purpose
	return []string{pl.source, pl.before}
}

// Outage lets nothing go wrong but one thing: for a while the store is not to be reached by anybody. It answers how often the
// processes tried meanwhile, and how many there were.
func Outage(t *testing.T, seed uint64, length time.Duration) (r Result, attempts, processes int) {
	t.Helper()
	const before = 60
	within(t, seed, None, func(s *simulation) {
		for range before {
			s.step()
			s.once(chances{})
		}
		for end := clock.System().Now().Add(length); clock.System().Now().Before(end); {
			s.step()
			if visitors := s.gate.visitors(); len(visitors) > 0 {
				attempts++
				s.gate.let(visitors[0], refuse)
			} else {
				s.sleep(pollEvery / 10)
			}
		}
		processes = len(s.names)
		r = s.settle()
	})
	return r, attempts, processes
}

// Poison has one run kill every process that carries its Function out, beside others that do no harm. It answers how often it did,
// and how the runs ended.
func Poison(t *testing.T, seed uint64) (r Result, kills int, ends map[string]execution.State) {
	t.Helper()
	ends = map[string]execution.State{}
	within(t, seed, None, func(s *simulation) {
		s.world.start(plan{workflow: poison, source: "run('act', {'label': 'deadly'})"})
		s.plans = append(s.plans, plan{workflow: poison})
		for range calmSteps {
			s.step()
			visitors := s.gate.visitors()
			at := slices.IndexFunc(visitors, func(v *visitor) bool { return strings.HasPrefix(v.what, "act "+poison+"/") })
			switch down := s.down(); {
			case at >= 0:
				kills++
				s.let(visitors[at], chances{kill: 1000})
			case len(down) > 0:
				s.boot(down[0])
			case s.over():
				r = s.settle()
				for _, e := range s.memory.executions {
					ends[e.Workflow] = e.State
				}
				return
			default:
				s.once(chances{})
			}
		}
		s.checker.violation("not all runs have ended: %s", s.checker.standing(s.memory))
		r = s.settle()
	})
	return r, kills, ends
}

// poison is the workflow that kills.
const poison = "poison"

// down are the names without a process.
func (s *simulation) down() []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return s.alive(name) != nil })
}

// within makes a simulation in a bubble of its own.
func within(t *testing.T, seed uint64, defect Defect, do func(s *simulation)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory, g := NewMemory(defect), &gate{}
		s := &simulation{
			t: t, random: rand.New(rand.NewPCG(seed, 1)), defect: defect, memory: memory, gate: g, //nolint:gosec // seeded on purpose
			lives: map[string]int{},
			world: &world{gate: g, memory: memory, effects: map[string]effect{}, labelled: map[string]string{}, rounds: map[string]int{}},
		}
		s.chances = draw(s.random)
		s.begin()
		do(s)
	})
}

// begin writes programs, hands them to the world and starts the processes.
func (s *simulation) begin() {
	s.names = []string{"a", "b", "c"}[:1+s.random.IntN(3)]
	workflows := []string{"w1", "w2", "w3"}[:1+s.random.IntN(3)]
	for _, workflow := range workflows {
		s.plans = append(s.plans, write(s.random, workflow, workflows))
	}
	for _, pl := range s.plans {
		s.result.Programs = append(s.result.Programs, "# "+pl.workflow+"\n"+pl.source)
		s.world.start(pl)
		for _, k := range pl.events {
			s.world.event(pl.workflow, k, 1+s.random.IntN(3))
			s.world.forge(pl.workflow, k)
		}
		if pl.cancelled {
			s.world.cancel(pl.workflow)
		}
		for _, label := range pl.messages {
			s.world.mail(pl.workflow, label)
		}
		if pl.before != "" {
			s.world.change(pl)
		}
	}
	for _, name := range s.names {
		s.boot(name)
	}
}

// settle lets everything come to its end, stops what runs and looks at what is left.
func (s *simulation) settle() Result {
	s.calm()
	for _, p := range slices.Clone(s.processes) {
		s.kill(p)
	}
	synctest.Wait()
	s.finish()
	s.result.Violations, s.result.Begun = s.wrong(), s.memory.begun
	for _, e := range s.memory.executions {
		s.result.Borders += e.Generation - 1
		for _, entry := range e.history {
			if entry.Kind == history.KindReceive && entry.Op == (history.OpRef{}) && entry.Event > 0 {
				s.result.Carried++ // the first thing that a later generation does
			}
		}
	}
	for _, pl := range s.plans {
		if e := s.memory.find(organization, pl.workflow); e != nil && e.changed {
			s.result.Changed++
			s.result.Old += s.world.oldSides(pl)
		}
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.result.Answered = s.world.answered
	return s.result
}

// wrong is what the parts of the simulation have found.
func (s *simulation) wrong() (all []string) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return append(append(append(all, s.checker.wrong...), s.world.wrong...), s.memory.trouble...)
}

// finish looks at what is left when everything is over.
func (s *simulation) finish() {
	s.checker.look(s.memory)
	if len(s.wrong()) > 0 {
		return
	}
	s.checker.finish(s.memory, s.world)
	for _, e := range s.memory.executions {
		for generation := range e.Generation {
			if err := replayed(e, generation+1); err != nil {
				s.checker.violation("%s, generation %d: %v", e.Workflow, generation+1, err)
			}
		}
	}
}

// replayed runs a program over the history of a generation, which has to lead to the same end.
func replayed(e *stored, generation int) error {
	entries := e.generation(generation)
	var begun json.RawMessage
	if generation > 1 {
		begun = e.continuations[generation-2]
	}
	for len(entries) > 0 && entries[len(entries)-1].Op.Branch < 0 {
		entries = entries[:len(entries)-1]
	}
	machine, err := script.New(script.Limits{}).Open(e.start.Program, e.start.Inputs, program.Environment{
		Ref: e.Ref, Workflow: e.Workflow, Continuation: begun,
		Now: clock.System().Now, UUID: func() string { return "" }, Random: func() float64 { return 0 },
		Token: func() string { return "" },
		Emit:  func(string, string, json.RawMessage) *history.FunctionError { return nil },
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer machine.Close()
	err = machine.Replay(entries)
	if _, differs := errors.AsType[*program.Mismatch](err); differs {
		return err
	}
	ended, failure := machine.Outcome()
	if generation < e.Generation {
		if !ended || failure != nil {
			return fmt.Errorf("ended %t with %w, and there is a generation behind it", ended, failure)
		}
		return nil
	}
	if want := e.State == execution.Failed; e.State != execution.Cancelled && e.State != execution.Quarantined &&
		(!ended || (failure != nil) != want) {
		return fmt.Errorf("ended as %s, and its replay %t with %w", e.State, ended, failure)
	}
	return nil
}

// short is the machine with the defect ReplaysShort.
type short struct{ program.Scripts }

func (s short) Open(p program.Program, inputs []byte, env program.Environment) (program.Machine, error) {
	m, err := s.Scripts.Open(p, inputs, env)
	return shortMachine{m}, err
}

type shortMachine struct{ program.Machine }

func (m shortMachine) Replay(history []history.Entry) error {
	const long = 3
	if len(history) > long {
		history = history[:len(history)-1]
	}
	return m.Machine.Replay(history)
}
