package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// Config says how programs are kept apart. The zero value of Processes and Limits means their defaults.
type Config struct {
	// Command starts a child: a binary that calls Serve, and its arguments.
	Command []string
	// Processes is how many children share the programs. Each works for one run at a time.
	Processes int
	// Limits bound each program.
	Limits Limits
	// Trusted says which programs run in this process instead.
	Trusted func(core.Program) bool
	// Here is what runs the trusted ones.
	Here  core.Scripts
	Clock clock.Clock
	Log   *slog.Logger
}

const defaultProcesses = 2

// Scripts runs programs in children, except those that are trusted. It is safe for concurrent use; Close ends the
// children.
type Scripts struct {
	Config

	mu sync.Mutex
	// children are those that are shared. Dead ones leave when that is noticed.
	children []*tenement
	// suspects are the runs that have to show alone that they keep their limits, by handle.
	suspects map[string]bool
	sessions uint64
	closed   bool
	// singles are the children that have one run only, the oldest first.
	singles []*tenement
	// idle is told when one of singles may have nothing to do any more. Its lock is mu.
	idle *sync.Cond
}

var (
	_ core.Scripts = (*Scripts)(nil)
	_ core.Near    = (*Scripts)(nil)
)

// tenement is a child with the number of runs that live in it. A single one never takes a second run.
type tenement struct {
	*process
	runs   int
	single bool
}

// New makes Scripts. No child is started before one is needed.
func New(c Config) *Scripts {
	c.Limits = c.Limits.withDefaults()
	if c.Processes == 0 {
		c.Processes = defaultProcesses
	}
	s := &Scripts{Config: c, suspects: map[string]bool{}}
	s.idle = sync.NewCond(&s.mu)
	return s
}

// Close ends all children. Runs that are in them are interrupted.
func (s *Scripts) Close() {
	s.mu.Lock()
	children := append(s.children, s.singles...)
	s.children, s.singles, s.closed = nil, nil, true
	s.mu.Unlock()
	for _, c := range children {
		c.close()
	}
}

// Near reports whether a program is trusted, and so runs in this process.
func (s *Scripts) Near(p core.Program) bool { return s.Trusted(p) }

// Check has a program checked. One that already exceeds its limits when it is compiled is Invalid.
func (s *Scripts) Check(p core.Program, inputs []byte) error {
	if s.Trusted(p) {
		return s.Here.Check(p, inputs)
	}
	_, err := s.once(request{Do: doCheck, Program: p, Inputs: inputs})
	return err
}

// Inspect has a program read.
func (s *Scripts) Inspect(p core.Program) (core.Outline, error) {
	if s.Trusted(p) {
		return s.Here.Inspect(p)
	}
	r, err := s.once(request{Do: doInspect, Program: p})
	return r.Outline, err
}

// once asks a child for something that leaves nothing behind. A child that dies is no proof against the program: the
// others in it may have filled or ended it. So the last try is in a child that has nothing else in it.
func (s *Scripts) once(req request) (r reply, err error) {
	const tries = 3
	for try := range tries {
		single := try == tries-1
		var home *tenement
		if home, err = s.enter(single); err != nil {
			return reply{}, err
		}
		r, err = home.do(req, core.Environment{}, s.patience())
		s.leave(home)
		if err == nil {
			return r, r.Error.error()
		}
		s.Log.Warn("child process ended", "doing", req.Do, "error", err)
		var over *excess
		if errors.As(err, &over) && (over.sure || single) {
			return reply{}, fault.InvalidFields(fault.Field{Name: "starlark", Problem: "the program " + s.worded(over)})
		}
	}
	return reply{}, fault.Because(err, fault.Unavailable, "the program could not be looked at")
}

// Open prepares a run.
func (s *Scripts) Open(p core.Program, inputs []byte, env core.Environment) (core.Machine, error) {
	if s.Trusted(p) {
		return s.Here.Open(p, inputs, env)
	}
	s.mu.Lock()
	s.sessions++
	m := &machine{scripts: s, session: s.sessions, env: env}
	single := s.suspects[env.Ref]
	s.mu.Unlock()
	home, err := s.enter(single)
	if err != nil {
		return nil, &core.Interrupted{Reason: err.Error()}
	}
	m.home = home
	r, err := home.do(request{Do: doOpen, Session: m.session, Program: p, Inputs: inputs, Ref: env.Ref, Continuation: env.Continuation}, env, s.patience())
	if err == nil {
		err = r.Error.error()
	} else {
		err = s.judge(m, err)
	}
	if err != nil {
		s.leave(home)
		return nil, err
	}
	return m, nil
}

// patience is how long a reply is waited for. It is only for children that hang: the CPU that a program uses is
// counted by the child, on a machine that has little of it, too.
func (s *Scripts) patience() time.Duration { return time.Minute + 10*s.Limits.CPU }

// enter finds a place for a run: in the shared child with the fewest, or in one of its own.
func (s *Scripts) enter(single bool) (*tenement, error) {
	if os.Getenv(marker) != "" {
		return nil, fault.New(fault.Unavailable, "a child process starts no children: its command does not call Serve")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fault.New(fault.Unavailable, "the service is stopping")
	}
	if single {
		return s.enterAlone()
	}
	var best *tenement
	for _, c := range s.children {
		if best == nil || c.runs < best.runs {
			best = c
		}
	}
	if best == nil || (best.runs > 0 && len(s.children) < s.Processes) {
		p, err := start(s.Command, s.Limits, s.Clock)
		if err != nil {
			return nil, fault.Because(err, fault.Unavailable, "no process for the program: %s", err)
		}
		best = &tenement{process: p}
		s.children = append(s.children, best)
	}
	best.runs++
	return best, nil
}

// enterAlone makes a child for one run. As many of them as shared ones may be there; then the one whose run has been
// there longest and does not compute is ended, and that run is replayed when it goes on.
func (s *Scripts) enterAlone() (*tenement, error) {
	for len(s.singles) >= s.Processes {
		if i := slices.IndexFunc(s.singles, func(t *tenement) bool { return t.closeIfIdle() }); i >= 0 {
			s.singles = slices.Delete(s.singles, i, i+1)
			continue
		}
		s.idle.Wait() // not for long: each is at work on one request
	}
	if s.closed {
		return nil, fault.New(fault.Unavailable, "the service is stopping")
	}
	p, err := start(s.Command, s.Limits, s.Clock)
	if err != nil {
		return nil, fault.Because(err, fault.Unavailable, "no process for the program: %s", err)
	}
	home := &tenement{process: p, single: true, runs: 1}
	s.singles = append(s.singles, home)
	return home, nil
}

// leave gives a place back. A child of one run ends with it, and dead ones are forgotten.
func (s *Scripts) leave(home *tenement) {
	if home.single {
		home.close()
	}
	dead := home.dead()
	s.mu.Lock()
	defer s.mu.Unlock()
	home.runs--
	if dead {
		is := func(t *tenement) bool { return t == home }
		s.children = slices.DeleteFunc(s.children, is)
		s.singles = slices.DeleteFunc(s.singles, is)
		s.idle.Broadcast()
	}
}

// judge says what the death of a run's child means to the run that was being worked for.
func (s *Scripts) judge(m *machine, err error) error {
	var over *excess
	if !errors.As(err, &over) {
		return &core.Interrupted{Reason: err.Error()}
	}
	s.Log.Warn("program exceeded its limits", "workflow_ref", m.env.Ref, "error", err, "alone", m.home.single)
	s.mu.Lock()
	defer s.mu.Unlock()
	if over.sure || m.home.single {
		delete(s.suspects, m.env.Ref)
		return fmt.Errorf("the program %s", s.worded(over))
	}
	s.suspects[m.env.Ref] = true
	return &core.Interrupted{Reason: "the process of several programs ran out of memory"}
}

// acquit forgets a suspicion: the run has ended.
func (s *Scripts) acquit(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.suspects, ref)
}

// worded is the excess with its limit.
func (s *Scripts) worded(over *excess) string {
	switch {
	case !over.sure:
		return fmt.Sprintf("%s: %d MiB", over.what, s.Limits.Memory>>20)
	case over.what == tooLong:
		return fmt.Sprintf("%s: %s of CPU time between two waits", over.what, s.Limits.CPU)
	default:
		return over.what
	}
}
