package sandbox

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// TasksConfig is what Tasks need.
type TasksConfig struct {
	// Command starts a child, which calls ServeTask.
	Command []string
	// Processes is how many tasks are computed at a time.
	Processes int
	// Limits bound one task.
	Limits Limits
	Clock  clock.Clock
}

// Tasks compute something from content that nobody here vouches for, each in a child of its own that ends with it: what was computed for
// one organization leaves nothing behind for another.
type Tasks struct {
	TasksConfig
	slots   *fair.Slots
	spawner *spawner
	// cpu shares processors with programs; nil shares none.
	cpu *cpu
}

// NewTasks starts no process yet.
func NewTasks(c TasksConfig) *Tasks {
	c.Limits = c.Limits.withDefaults()
	return &Tasks{TasksConfig: c, slots: fair.NewSlots(c.Processes), spawner: newSpawner()}
}

// Beside has tasks take turns for the processors with the programs of Scripts: what one organization has rendered counts as computed.
func (t *Tasks) Beside(s *Scripts) { t.cpu = s.processors }

// Close ends what starts children.
func (t *Tasks) Close() { t.spawner.stop() }

// taskFactor is how much longer than its CPU time a task may take on a busy machine.
const taskFactor = 3

// previewing stands for all organizations together where the processors are shared: what is computed for previews is not charged to what
// else an organization computes.
const previewing = -1

// Do has a child compute the answer to a request. Organizations take turns. The error is Refused if the task takes more memory or time than
// it may, Unavailable if no child could be started, if it has not answered on a busy machine, or if the context ends, which ends the child,
// and Invalid with the text of what compute has answered as its error.
func (t *Tasks) Do(ctx context.Context, organization int64, body []byte) ([]byte, error) {
	if err := t.slots.Acquire(ctx, organization); err != nil {
		return nil, fault.Because(err, fault.Unavailable, "waited too long for a child process")
	}
	defer t.slots.Release()
	return t.compute(ctx, organization, body, false)
}

// Preview is Do for what nobody deploys now: one at a time, behind all others, and with what they leave of the processors.
func (t *Tasks) Preview(ctx context.Context, organization int64, body []byte) ([]byte, error) {
	if err := t.slots.AcquireLast(ctx, organization); err != nil {
		return nil, fault.Because(err, fault.Unavailable, "waited too long for a child process, behind what is deployed")
	}
	defer t.slots.ReleaseLast()
	return t.compute(ctx, previewing, body, true)
}

func (t *Tasks) compute(ctx context.Context, organization int64, body []byte, yields bool) ([]byte, error) {
	if os.Getenv(marker) != "" {
		return nil, fault.New(fault.Unavailable, "a child process starts no children: its command does not call ServeTask")
	}
	var p *process
	err := t.spawner.do(func() (err error) {
		p, err = start(t.Command, t.Limits, t.Clock)
		return err
	})
	if err != nil {
		return nil, fault.Because(err, fault.Unavailable, "no child process could be started")
	}
	defer p.close()
	p.cpu, p.organization, p.last = t.cpu, organization, yields
	unwanted := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() }) // one that has ended needs nothing
	defer unwanted()
	r, err := p.do(request{Do: doCompute, Body: body}, program.Environment{}, taskFactor*t.Limits.CPU+startWithin)
	over, exceeded := errors.AsType[*excess](err)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fault.Because(ctx.Err(), fault.Unavailable, "the answer was not awaited any more")
	case exceeded:
		return nil, fault.New(fault.Refused, "what was asked for %s", over.what)
	case errors.Is(err, errStalled):
		return nil, fault.Because(err, fault.Unavailable, "the child process has not answered in time; the machine may be busy")
	case err != nil:
		return nil, fault.Because(err, fault.Unavailable, "the child process has ended")
	case r.Error != nil:
		return nil, fault.New(fault.Invalid, "%s", r.Error.Text)
	}
	return r.Body, nil
}

// ServeTask is a child that computes answers to requests, confined like one that runs programs.
func ServeTask(ctx context.Context, in io.Reader, out io.Writer, compute func([]byte) ([]byte, error)) error {
	return serve(ctx, in, out, &child{compute: compute, out: out, in: make(chan request), sessions: map[uint64]*session{}})
}

// mostProblem bounds the text of an error of a task.
const mostProblem = 4 << 10

// task carries out doCompute.
func (c *child) task(body []byte) (r reply) {
	if c.compute == nil {
		return reply{Error: &failure{Text: "this child runs programs"}}
	}
	defer func() { // libraries that read what anybody has written
		if p := recover(); p != nil {
			r = reply{Error: &failure{Text: "the content cannot be processed: it led to a failure in the library that reads it"}}
		}
	}()
	answer, err := c.compute(body)
	if err != nil {
		text := err.Error()
		return reply{Error: &failure{Text: text[:min(len(text), mostProblem)]}}
	}
	return reply{Body: answer}
}
