package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Config says how programs are kept apart. The zero value of Processes and Limits means their defaults.
type Config struct {
	// Command starts a child: a binary that calls Serve, and its arguments.
	Command []string
	// Processes is how many children compute at a time, each for one run. What else there is to compute waits for its turn, by organization.
	Processes int
	// Children is how many there may be. Each is of one organization, which may have Processes of them.
	Children int
	// Memory is what all children may hold together, in bytes. Beyond it some are ended, and their runs are replayed.
	Memory int64
	// Limits bound each program.
	Limits Limits
	// Trusted says which programs run in this process instead.
	Trusted func(program.Program) bool
	// Here is what runs the trusted ones.
	Here  program.Scripts
	Clock clock.Clock
	Log   *slog.Logger
}

// The defaults. README names the same numbers.
const (
	defaultProcesses   = 2
	defaultChildren    = 16
	defaultTotalMemory = 512 << 20
)

// Scripts runs programs in children, except those that are trusted. It is safe for concurrent use; Close ends the
// children.
type Scripts struct {
	Config

	places     *places
	processors *cpu
	spawner    *spawner

	mu sync.Mutex
	// suspects are the runs that have to show alone that they keep their limits, by handle.
	suspects map[string]bool
	sessions uint64
	closed   bool
	// isolation is how far the child that was started last is confined; nil: none was.
	isolation *Isolation
}

var (
	_ program.Scripts = (*Scripts)(nil)
	_ program.Near    = (*Scripts)(nil)
	_ program.Shared  = (*Scripts)(nil)
)

// New makes Scripts. No child is started before one is needed.
func New(c Config) *Scripts {
	c.Limits = c.Limits.withDefaults()
	if c.Processes == 0 {
		c.Processes = defaultProcesses
	}
	if c.Children == 0 {
		c.Children = max(defaultChildren, c.Processes)
	}
	if c.Memory == 0 {
		c.Memory = max(defaultTotalMemory, c.Limits.Memory)
	}
	s := &Scripts{Config: c, suspects: map[string]bool{}, spawner: newSpawner()}
	s.places = &places{start: s.start, most: c.Children, share: c.Processes, clock: c.Clock, budget: c.Memory, resident: residentBytes}
	s.processors = newCPU(c.Processes, max(1, runtime.GOMAXPROCS(0)-1), c.Clock)
	return s
}

// start starts a child.
func (s *Scripts) start() (p *process, err error) {
	if os.Getenv(marker) != "" {
		return nil, fault.New(fault.Unavailable, "a child process starts no children: its command does not call Serve")
	}
	err = s.spawner.do(func() error {
		p, err = start(s.Command, s.Limits, s.Clock)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.cpu = s.processors
	s.mu.Lock()
	before := s.isolation
	s.isolation = &p.isolation
	s.mu.Unlock()
	if before == nil || *before != p.isolation {
		for _, layer := range p.isolation.Layers() {
			if layer.Missing != "" {
				s.Log.Warn("a layer of the isolation of child processes is not in force", "layer", layer.Name, "reason", layer.Missing)
			}
		}
	}
	return p, nil
}

// Isolation says how far children are confined; false: none has been started yet.
func (s *Scripts) Isolation() (Isolation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isolation == nil {
		return Isolation{}, false
	}
	return *s.isolation, true
}

// Prepare starts a child in the background for the first program that comes.
func (s *Scripts) Prepare() {
	s.places.mu.Lock()
	defer s.places.mu.Unlock()
	s.places.prepare()
}

// Moved is how often a child was ended because others needed its place or its memory.
func (s *Scripts) Moved() int64 {
	s.places.mu.Lock()
	defer s.places.mu.Unlock()
	return s.places.moved
}

// Close ends all children. Runs that are in them are interrupted.
func (s *Scripts) Close() {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if !was {
		s.places.close()
		s.spawner.stop()
	}
}

// Near reports whether a program is trusted, and so runs in this process.
func (s *Scripts) Near(p program.Program) bool { return s.Trusted(p) }

// For is Scripts whose checks are made among the programs of an organization.
func (s *Scripts) For(organization int64) program.Scripts { return ofOne{s, organization} }

// ofOne is Scripts of one organization.
type ofOne struct {
	*Scripts

	organization int64
}

// Check has a program checked.
func (o ofOne) Check(p program.Program, inputs []byte) error {
	return o.check(o.organization, p, inputs)
}

// Inspect has a program read.
func (o ofOne) Inspect(p program.Program) (program.Outline, error) {
	return o.inspect(o.organization, p)
}

// Check has a program checked that is nobody's yet. One that already exceeds its limits when it is compiled is Invalid.
func (s *Scripts) Check(p program.Program, inputs []byte) error { return s.check(0, p, inputs) }

// Inspect has a program read that is nobody's yet.
func (s *Scripts) Inspect(p program.Program) (program.Outline, error) { return s.inspect(0, p) }

func (s *Scripts) check(organization int64, p program.Program, inputs []byte) error {
	if s.Trusted(p) {
		return s.Here.Check(p, inputs)
	}
	_, err := s.once(organization, request{Do: doCheck, Program: p, Inputs: inputs})
	return err
}

func (s *Scripts) inspect(organization int64, p program.Program) (program.Outline, error) {
	if s.Trusted(p) {
		return s.Here.Inspect(p)
	}
	r, err := s.once(organization, request{Do: doInspect, Program: p})
	return r.Outline, err
}

// once asks a child for something that leaves nothing behind. A child that dies is no proof against the program: the
// others in it may have filled or ended it. So the last try is in a child that has nothing else in it, as is every one for a program of
// no organization.
func (s *Scripts) once(organization int64, req request) (r reply, err error) {
	const tries = 3
	for try := range tries {
		single := try == tries-1 || organization == 0
		var home *tenement
		if home, err = s.places.enter(organization, single); err != nil {
			return reply{}, fault.Because(err, fault.Unavailable, "the program could not be looked at")
		}
		r, err = s.places.ask(home, req, program.Environment{}, s.patience())
		s.places.leave(home)
		if err == nil {
			return r, r.Error.error()
		}
		if moved(err) {
			continue
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
func (s *Scripts) Open(p program.Program, inputs []byte, env program.Environment) (program.Machine, error) {
	if s.Trusted(p) {
		return s.Here.Open(p, inputs, env)
	}
	s.mu.Lock()
	s.sessions++
	m := &machine{scripts: s, session: s.sessions, env: env}
	single := s.suspects[env.Ref]
	s.mu.Unlock()
	home, err := s.places.enter(env.Organization, single)
	if err != nil {
		return nil, &program.Interrupted{Reason: err.Error()}
	}
	m.home = home
	r, err := s.places.ask(home, request{
		Do: doOpen, Session: m.session, Program: p, Inputs: inputs, Ref: env.Ref, Workflow: env.Workflow,
		Continuation: env.Continuation, Begun: env.Begun, Watched: env.Asked != nil,
	}, env, s.patience())
	if err == nil {
		err = r.Error.error()
	} else {
		err = s.judge(m, err)
	}
	if err != nil {
		s.places.leave(home)
		return nil, err
	}
	s.places.release(home)
	return m, nil
}

// patience is how long a reply is waited for. It is only for children that hang: the CPU that a program uses is
// counted by the child, on a machine that has little of it, too.
func (s *Scripts) patience() time.Duration { return time.Minute + 10*s.Limits.CPU }

// judge says what the death of a run's child means to the run that was being worked for.
func (s *Scripts) judge(m *machine, err error) error {
	var over *excess
	if !errors.As(err, &over) {
		return &program.Interrupted{Reason: err.Error(), Moved: moved(err)}
	}
	s.Log.Warn("program exceeded its limits", "workflow_ref", m.env.Ref, "error", err, "alone", m.home.single)
	s.mu.Lock()
	defer s.mu.Unlock()
	if over.sure || m.home.single {
		delete(s.suspects, m.env.Ref)
		return fmt.Errorf("the program %s", s.worded(over))
	}
	s.suspects[m.env.Ref] = true
	return &program.Interrupted{Reason: "the process of several programs ran out of memory"}
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
