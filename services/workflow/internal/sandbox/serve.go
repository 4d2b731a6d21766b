package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// Limits bound what one program may take of a child. The zero value of each means its default.
type Limits struct {
	// Memory is what all runs of a child may hold, in bytes; a run that exceeds it alone has failed.
	Memory int64
	// CPU is what a program may use between two waits.
	CPU time.Duration
}

// The defaults. README names the same numbers.
const (
	defaultMemory = 256 << 20
	defaultCPU    = 10 * time.Second
)

func (l Limits) withDefaults() Limits {
	if l.Memory == 0 {
		l.Memory = defaultMemory
	}
	if l.CPU == 0 {
		l.CPU = defaultCPU
	}
	return l
}

// maxStack bounds the stack of one goroutine of a child, in bytes. Nothing but the nesting of a program's text and
// values makes one grow, and the whole child falls when it is exceeded.
const maxStack = 64 << 20

// Serve is a child: it carries out what comes from in until that ends, and exits the process when a program exceeds its
// limits. The end of ctx changes nothing: a child ends with its service.
func Serve(ctx context.Context, in io.Reader, out io.Writer, scripts program.Scripts) error {
	return serve(ctx, in, out, &child{scripts: scripts, out: out, in: make(chan request), sessions: map[uint64]*session{}})
}

func serve(ctx context.Context, in io.Reader, out io.Writer, c *child) error {
	debug.SetMaxStack(maxStack)
	go func() {
		r := bufio.NewReader(in)
		for {
			var req request
			if err := receive(r, &req); err != nil {
				// The service is gone, or has no more use for this child. It does not wait for the program to see it.
				exit(0)
			}
			c.in <- req
		}
	}()
	for req := range c.in {
		if err := send(out, c.handle(ctx, req)); err != nil {
			return err
		}
	}
	return nil
}

// child is the state of a child process.
type child struct {
	scripts program.Scripts
	// compute is set for a child of Tasks, which runs no programs.
	compute  func([]byte) ([]byte, error)
	in       chan request
	out      io.Writer
	sessions map[uint64]*session
	watch    *watchdog
	// bounded is set while children have to be admitted.
	bounded bool
}

// session is one run.
type session struct {
	machine program.Machine
	// known are the operations that the service knows already, with the number of poll rounds they have gone through.
	known map[history.OpRef]bool
	// asked are the operations that were reached since the last turn, if the run is watched.
	asked []program.Asked
}

// handle carries out a request. Work on programs is watched; the rest is short.
func (c *child) handle(ctx context.Context, req request) reply {
	if c.watch != nil {
		c.watch.begin()
		defer c.watch.end()
	}
	c.bounded = req.Bounded
	switch req.Do {
	case doHello:
		limits := req.Limits.withDefaults()
		if err := confine(limits); err != nil {
			return reply{Error: wrap(err)}
		}
		c.watch = startWatchdog(ctx, limits)
		return reply{Isolation: isolate()}
	case doCompute:
		return c.task(req.Body)
	case doCheck:
		return reply{Error: wrap(c.scripts.Check(req.Program, req.Inputs))}
	case doInspect:
		outline, err := c.scripts.Inspect(req.Program)
		return reply{Error: wrap(err), Outline: outline}
	case doOpen:
		opened := &session{known: map[history.OpRef]bool{}}
		env := c.environment(req)
		if req.Watched {
			env.Asked = func(asked program.Asked) { opened.asked = append(opened.asked, asked) }
		}
		var err error
		if opened.machine, err = c.scripts.Open(req.Program, req.Inputs, env); err != nil {
			return reply{Error: wrap(err)}
		}
		c.sessions[req.Session] = opened
		return reply{}
	}
	s, ok := c.sessions[req.Session]
	if !ok {
		return reply{Error: wrap(fmt.Errorf("there is no session %d", req.Session))}
	}
	stopped := false
	switch req.Do {
	case doReplay:
		_ = s.machine.Replay(req.History) // a failure is the turn's
	case doComplete:
		delete(s.known, req.Completion.Op)
		s.machine.Complete(*req.Completion)
	case doStop:
		stopped = s.machine.Stop(*req.Stopped)
	case doClose:
		s.machine.Close()
		delete(c.sessions, req.Session)
		return reply{}
	default:
		return reply{Error: wrap(fmt.Errorf("unknown verb %q", req.Do))}
	}
	turn := s.turn()
	turn.Stopped = stopped
	return reply{Turn: turn}
}

// turn reads out of the machine what it did.
func (s *session) turn() turn {
	var t turn
	pending := s.machine.Pending()
	if t.Ending = s.machine.Ending(); t.Ending {
		for ref := range s.known {
			if !slices.ContainsFunc(pending, func(op history.Op) bool { return op.Ref == ref }) {
				delete(s.known, ref)
				t.Withdrawn = append(t.Withdrawn, ref)
			}
		}
	}
	for _, op := range pending {
		if !s.known[op.Ref] {
			s.known[op.Ref] = true
			t.Pending = append(t.Pending, op)
		}
	}
	t.Entries, t.Emits = s.machine.Take()
	t.Asked, s.asked = s.asked, nil
	ended, err := s.machine.Outcome()
	t.Ended, t.Failure, t.Result = ended, wrap(err), s.machine.Result()
	return t
}

// environment asks the service for what a program can reach.
func (c *child) environment(req request) program.Environment {
	return program.Environment{
		Ref: req.Ref, Workflow: req.Workflow, Continuation: req.Continuation, Begun: req.Begun,
		Now:    func() time.Time { return c.ask(question{Kind: history.KindNow}).Time },
		UUID:   func() string { return c.ask(question{Kind: history.KindUUID}).Text },
		Random: func() float64 { return c.ask(question{Kind: history.KindRandom}).Number },
		Token:  func() string { return c.ask(question{Kind: history.KindChannel}).Text },
		Emit: func(id, eventType string, data json.RawMessage) *history.FunctionError {
			return c.ask(question{Kind: history.KindEmit, ID: id, Type: eventType, Data: data}).Refusal
		},
		Start: func(bytes int) *history.FunctionError {
			if !c.bounded {
				return nil
			}
			return c.ask(question{Kind: history.KindStart, Bytes: bytes}).Refusal
		},
	}
}

// ask puts a question in the middle of a request. The service answers nothing else meanwhile.
func (c *child) ask(q question) answer {
	if err := send(c.out, reply{Ask: &q}); err != nil {
		exit(0) // nobody is there any more
	}
	return (<-c.in).Answer
}
