package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
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
func Poison(t *testing.T, seed uint64) (r Result, kills int, ends map[string]core.State) {
	t.Helper()
	ends = map[string]core.State{}
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
			t: t, random: rand.New(rand.NewPCG(seed, 1)), defect: defect, memory: memory, gate: g, lives: map[string]int{}, //nolint:gosec // seeded on purpose
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
		}
		if pl.cancelled {
			s.world.cancel(pl.workflow)
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
	s.result.Violations = s.wrong()
	return s.result
}

// wrong is what the parts of the simulation have found.
func (s *simulation) wrong() (all []string) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return append(append(append(all, s.checker.wrong...), s.world.wrong...), s.memory.trouble...)
}

// step lets everything come to a stand and looks at it. false: something is wrong, and it makes no sense to go on.
func (s *simulation) step() bool {
	// No two steps are at the same moment, so no two timers end at the same moment either: their order is not left to chance.
	_ = clock.Sleep(s.t.Context(), clock.System(), time.Microsecond) // virtual time
	synctest.Wait()
	s.result.Steps++
	s.processes = slices.DeleteFunc(s.processes, func(p *process) bool { return p.dead })
	s.checker.look(s.memory)
	return len(s.wrong()) == 0
}

// chaos does one thing.
func (s *simulation) chaos() {
	switch what := s.random.IntN(1000); {
	case what < s.chances.kill:
		s.replace(s.names[s.random.IntN(len(s.names))])
	case what < s.chances.kill+s.chances.stall && len(s.processes) > 0:
		p := s.processes[s.random.IntN(len(s.processes))]
		s.gate.stall(p, !p.stalled)
		s.trace("stall %s/%d %t", p.name, p.life, p.stalled)
	case what < 300:
		s.deliver(s.chances)
	case what < 400:
		s.sleep([]time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 4 * time.Second}[s.random.IntN(4)])
	default:
		s.once(s.chances)
	}
}

// once lets one call through, or has one message arrive, or lets time pass.
func (s *simulation) once(c chances) {
	if visitors := s.gate.visitors(); len(visitors) > 0 {
		s.let(visitors[s.random.IntN(len(visitors))], c)
	} else if !s.deliver(c) {
		s.sleep(time.Second)
	}
}

// calm lets everything be well until all runs have ended.
func (s *simulation) calm() {
	for _, p := range s.processes {
		s.gate.stall(p, false)
	}
	for range calmSteps {
		if !s.step() {
			return
		}
		visitors := s.gate.visitors()
		switch down := s.down(); {
		case len(down) > 0:
			s.boot(down[0])
		case len(visitors) > 0:
			s.let(visitors[s.random.IntN(len(visitors))], chances{})
		case s.deliver(chances{}):
		case s.over():
			return
		default:
			s.sleep(time.Second)
		}
	}
	s.checker.violation("after %d steps without any trouble not all runs have ended: %s", calmSteps, s.checker.standing(s.memory))
}

// over reports whether all runs have ended and nothing works for them any more.
func (s *simulation) over() bool {
	for _, pl := range s.plans {
		if e := s.memory.find(organization, pl.workflow); e == nil || !e.State.Ended() {
			return false
		}
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return s.world.running == 0
}

func (s *simulation) trace(format string, args ...any) {
	s.result.Trace = append(s.result.Trace, fmt.Sprintf(format, args...))
}

// let gives a visitor its verdict.
func (s *simulation) let(v *visitor, c chances) {
	given, what := apply, s.random.IntN(1000)
	switch {
	case what < c.refuse:
		given = refuse
	case what < c.refuse+c.hide:
		given = hide
		s.result.Ambiguous++
	}
	if s.random.IntN(1000) < c.kill {
		given = []verdict{die, dieAfter}[s.random.IntN(2)]
	}
	s.trace("%s/%d %s: %d", v.process.name, v.process.life, v.what, given)
	if given == die || given == dieAfter {
		s.gate.leave(v)
		s.kill(v.process)
		v.verdict <- given
		return
	}
	s.gate.let(v, given)
}

// deliver has one message of the bus arrive. false: there is none, or nobody to take it.
func (s *simulation) deliver(c chances) bool {
	idle := s.world.idle()
	var up []*process
	for _, p := range s.processes {
		if !p.dead && !p.stalled {
			up = append(up, p)
		}
	}
	if len(idle) == 0 || len(up) == 0 {
		return false
	}
	m, p := idle[s.random.IntN(len(idle))], up[s.random.IntN(len(up))]
	if m.local && s.random.IntN(1000) < c.drop {
		s.trace("lost %s", m.name)
		s.world.drop(m)
		return true
	}
	if s.random.IntN(1000) < c.duplicate && m.copies < 4 {
		m.copies++
	}
	s.trace("deliver %s to %s/%d", m.name, p.name, p.life)
	s.world.deliver(m, p)
	return true
}

func (s *simulation) sleep(d time.Duration) {
	s.trace("sleep %s", d)
	_ = clock.Sleep(s.t.Context(), clock.System(), d) // virtual time
}

// replace kills the process of a name, or starts a second one of the name beside it, or starts one where there is none.
func (s *simulation) replace(name string) {
	if p := s.alive(name); p != nil && s.random.IntN(4) > 0 {
		s.trace("kill %s/%d", p.name, p.life)
		s.kill(p)
		return
	}
	s.boot(name)
}

func (s *simulation) alive(name string) *process {
	for _, p := range s.processes {
		if p.name == name && !p.dead {
			return p
		}
	}
	return nil
}

func (s *simulation) kill(p *process) {
	s.result.Kills++
	p.stop()
	s.gate.kill(p)
}

// boot starts a process.
func (s *simulation) boot(name string) {
	s.lives[name]++
	p := &process{
		name: name, life: s.lives[name], world: s.world, skew: time.Duration(s.random.IntN(5)-2) * 3 * time.Second,
	}
	s.trace("boot %s/%d, clock wrong by %s", name, p.life, p.skew)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	log := slog.New(slog.DiscardHandler)
	scripts := core.Scripts(script.New(script.Limits{}))
	if s.defect == ReplaysShort {
		scripts = short{scripts}
	}
	functions, err := core.NewFunctions(act{s.world, p}, core.OnCluster("k8s.get"))
	if err != nil {
		s.t.Fatal(err)
	}
	to := &port{gate: s.gate, process: p, memory: s.memory}
	engine := core.NewEngine(core.EngineDeps{
		Store: to, Scripts: scripts, Functions: functions, Clock: p, Log: log,
		CheckEmit: func(core.Emit) *core.FunctionError { return nil },
		Random:    func() float64 { return 0.5 },
		Settings: core.Settings{
			Instance: name, Lease: leaseFor, Poll: pollEvery, CallTimeout: 20 * time.Second, WaitTimeout: time.Minute,
			Live: 2, Cache: []int64{0, 40 << 10, 1 << 20}[s.random.IntN(3)], Activities: 8, History: 1000, Crashes: maxCrashes, Retention: time.Hour,
			Agents: map[int64]bool{agent: true},
		},
	})
	to.woken = engine.Wake
	p.service = core.NewService(to, scripts, p, engine)
	dispatcher := core.Dispatcher{Store: to, Sender: s.world, Clock: p, Log: log, Poll: pollEvery, Woken: engine.Calls()}
	s.processes = append(s.processes, p)
	go func() {
		defer stop()
		// It ends with ctx, when another process takes its name, and when it could not take it.
		_ = engine.Run(ctx, func() {})
		s.gate.kill(p)
	}()
	go func() { _ = dispatcher.Run(ctx) }()
}

// finish looks at what is left when everything is over.
func (s *simulation) finish() {
	s.checker.look(s.memory)
	if len(s.wrong()) > 0 {
		return
	}
	s.checker.finish(s.memory, s.world)
	for _, e := range s.memory.executions {
		if err := replayed(e); err != nil {
			s.checker.violation("%s: %v", e.Workflow, err)
		}
	}
}

// replayed runs a program over its whole history, which has to lead to the same end.
func replayed(e *execution) error {
	history := e.history
	for len(history) > 0 && history[len(history)-1].Op.Branch < 0 {
		history = history[:len(history)-1]
	}
	machine, err := script.New(script.Limits{}).Open(e.start.Program, e.start.Inputs, core.Environment{
		Ref: e.Ref, Now: clock.System().Now, UUID: func() string { return "" }, Random: func() float64 { return 0 }, Token: func() string { return "" },
		Emit: func(string, string, json.RawMessage) *core.FunctionError { return nil },
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer machine.Close()
	err = machine.Replay(history)
	if _, differs := errors.AsType[*core.Mismatch](err); differs {
		return err
	}
	ended, failure := machine.Outcome()
	if want := e.State == core.Failed; e.State != core.Cancelled && e.State != core.Quarantined && (!ended || (failure != nil) != want) {
		return fmt.Errorf("ended as %s, and its replay %t with %w", e.State, ended, failure)
	}
	return nil
}

// short is the machine with the defect ReplaysShort.
type short struct{ core.Scripts }

func (s short) Open(p core.Program, inputs []byte, env core.Environment) (core.Machine, error) {
	m, err := s.Scripts.Open(p, inputs, env)
	return shortMachine{m}, err
}

type shortMachine struct{ core.Machine }

func (m shortMachine) Replay(history []core.Entry) error {
	const long = 3
	if len(history) > long {
		history = history[:len(history)-1]
	}
	return m.Machine.Replay(history)
}
