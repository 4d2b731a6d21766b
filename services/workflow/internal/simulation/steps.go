package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// step waits until nothing moves and checks the store. It returns false if something is wrong and the simulation has to stop.
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
	for _, e := range s.memory.executions { // children end with their parents, if not before
		if !e.State.Ended() {
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
	scripts := program.Scripts(script.New(script.Limits{}))
	if s.defect == ReplaysShort {
		scripts = short{scripts}
	}
	functions, err := activity.NewFunctions(act{s.world, p}, checkpoint{}, activity.OnCluster("k8s.get"))
	if err != nil {
		s.t.Fatal(err)
	}
	to := &port{gate: s.gate, process: p, memory: s.memory}
	engine := engine.New(engine.Deps{
		Store: to, Scripts: scripts, Functions: functions, Agents: agent.NewRegistry(declared{}, p, log), Clock: p, Log: log,
		CheckEmit: func(history.Emit) *history.FunctionError { return nil },
		Random:    func() float64 { return 0.5 },
		Settings: engine.Settings{
			Instance: name, Lease: leaseFor, Poll: pollEvery, CallTimeout: 20 * time.Second, WaitTimeout: time.Minute,
			Live: 2, Cache: []int64{0, 40 << 10, 1 << 20}[s.random.IntN(3)], Activities: 8, History: 1000, Crashes: maxCrashes, Retention: time.Hour,
		},
	})
	// Of two lives of a process one knows the programs from the beginning, and runs ahead of their starts.
	for _, pl := range s.plans {
		if p.life%2 == 1 {
			engine.Vouch(program.Digest([]byte(pl.first())))
		}
	}
	to.woken = engine.Wake
	p.service = control.NewService(to, scripts, p, engine)
	dispatcher := agent.Dispatcher{Store: to, Sender: s.world, Clock: p, Log: log, Woken: engine.Calls()}
	s.processes = append(s.processes, p)
	go func() {
		defer stop()
		// It ends with ctx, when another process takes its name, and when it could not take it.
		_ = engine.Run(ctx, func() {})
		s.gate.kill(p)
	}()
	go func() { _ = dispatcher.Run(ctx) }()
}
