package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fair"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// process is a child as the service sees it. Requests to it go one at a time.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	wrote *head
	clock clock.Clock

	// turns is one slot, held during a request. Runs and checks take turns for it.
	turns *fair.Slots
	// cpu is who says when the child may compute for its organization.
	cpu          *cpu
	organization int64
	// gone is set once it can no longer be used, by the holder of the slot; anybody may read it.
	gone atomic.Bool
	// moved is set if it is gone because others needed its place or its memory, which says nothing about the programs in it.
	moved atomic.Bool
	// begun is when the present request began, or the last one, in nanoseconds since 1970.
	begun atomic.Int64
	// yields is set if it makes room for whatever else wants a processor.
	yields bool
	// last is set if it always does.
	last bool
	// isolation is how far it says it is confined.
	isolation Isolation
}

// errGone is a child that has died before it was asked.
var errGone = errors.New("the child process is gone")

// errMoved is a child that had to make room for another organization's programs.
var errMoved = errors.New("the child process has made room for others")

// errStalled is a child that did not answer for far longer than its program may compute.
var errStalled = errors.New("the child process does not answer")

// start starts a child, which belongs to no organization yet. It inherits nothing: no environment, no file but the pipes. It is called on a
// thread that outlives the child, which ends with it.
func start(command []string, limits Limits, c clock.Clock) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)   //nolint:gosec,noctx // the operator's choice, by default this binary; it ends with its pipe
	cmd.Env = []string{marker + "=1", "GOMAXPROCS=1"} // a slot is one processor: no garbage is collected beside the program
	cmd.Dir, cmd.SysProcAttr = os.TempDir(), attributes()
	p := &process{cmd: cmd, wrote: &head{}, clock: c, turns: fair.NewSlots(1)}
	cmd.Stderr = p.wrote
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	_ = background(p.pid(), false) // the threads that it has before it lowers its own priority; one that has ended is found below
	hello, err := p.do(request{Do: doHello, Limits: limits}, program.Environment{}, startWithin)
	if err == nil {
		err = hello.Error.error()
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	p.isolation = hello.Isolation
	return p, nil
}

// marker is the variable that is set for a child: it never starts children of its own, whatever its binary does with the command.
const marker = "LOCKSTEP_SANDBOX"

// startWithin bounds the start of a child.
const startWithin = 30 * time.Second

// do asks when it is the turn of the child and of its organization, and awaits the reply. Every request ends, by its alarm if by nothing
// else, and so does the wait. Questions in between are answered from env. After an error that is not the request's own (reply.Error) the
// child is dead.
func (p *process) do(req request, env program.Environment, within time.Duration) (reply, error) {
	p.turns.Enter(env.Organization) // none for a check
	defer p.turns.Release()
	if p.dead() {
		return reply{}, p.why()
	}
	p.begun.Store(p.clock.Now().UnixNano())
	stopped := func() time.Duration { return 0 }
	if p.cpu != nil {
		t := p.cpu.enter(p.organization, p)
		defer p.cpu.leave(t)
		stopped = func() time.Duration { return p.cpu.stoppedFor(t) }
	}
	stalled := p.alarm(within, stopped)
	answered, err := p.exchange(req, env)
	if late := stalled(); late {
		p.gone.Store(true)
		return reply{}, errors.Join(errStalled, p.end())
	}
	if err != nil {
		p.gone.Store(true)
		if err := p.verdict(err); !p.moved.Load() {
			return reply{}, err
		}
		return reply{}, errMoved
	}
	return answered, nil
}

// why is the error of a child that is gone.
func (p *process) why() error {
	if p.moved.Load() {
		return errMoved
	}
	return errGone
}

// move ends the child in the middle of whatever it does, in favor of others.
func (p *process) move() {
	p.moved.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended by itself
}

// pid is the number of the process.
func (p *process) pid() int { return p.cmd.Process.Pid }

// pause and resume stop the child where it is, and let it continue.
func (p *process) pause()  { _ = p.cmd.Process.Signal(signalStop) } // one that has ended needs neither
func (p *process) resume() { _ = p.cmd.Process.Signal(signalContinue) }

// yield has the child make room for whatever else wants a processor, or ends that. It is called under the lock of cpu.
func (p *process) yield(on bool) {
	on = on || p.last
	if p.yields == on {
		return
	}
	if background(p.pid(), on) == nil { // one that has ended needs nothing
		p.yields = on
	}
}

// alarm kills the child when it has not been called off in time, that in which it was stopped left out. Calling it off says whether it was
// too late.
func (p *process) alarm(within time.Duration, stopped func() time.Duration) (callOff func() (late bool)) {
	off, late := make(chan struct{}), make(chan bool, 1)
	go func() {
		for left, seen := within, time.Duration(0); ; {
			timer := p.clock.NewTimer(left)
			select {
			case <-timer.C():
			case <-off:
				timer.Stop()
				late <- false
				return
			}
			so := stopped()
			if left, seen = so-seen, so; left <= 0 {
				_ = p.cmd.Process.Kill()
				late <- true
				return
			}
		}
	}()
	return func() bool {
		close(off)
		return <-late
	}
}

func (p *process) exchange(req request, env program.Environment) (reply, error) {
	for {
		if err := send(p.in, req); err != nil {
			return reply{}, err
		}
		var r reply
		if err := receive(p.out, &r); err != nil {
			return reply{}, err
		}
		if r.Ask == nil {
			return r, nil
		}
		req = request{Do: doAnswer, Answer: answerTo(*r.Ask, env)}
	}
}

func answerTo(q question, env program.Environment) answer {
	switch q.Kind {
	case history.KindNow:
		return answer{Time: env.Now()}
	case history.KindUUID:
		return answer{Text: env.UUID()}
	case history.KindRandom:
		return answer{Number: env.Random()}
	case history.KindChannel:
		return answer{Text: env.Token()}
	case history.KindEmit:
		return answer{Refusal: env.Emit(q.ID, q.Type, q.Data)}
	case history.KindStart:
		return answer{Refusal: env.Start(q.Bytes)}
	default:
		return answer{Refusal: &history.FunctionError{Code: history.CodeInternal, Message: "unknown question"}}
	}
}

// close ends the child.
func (p *process) close() {
	p.turns.Enter(0)
	defer p.turns.Release()
	p.shut()
}

// shut is close for who holds the slot.
func (p *process) shut() {
	if !p.gone.Swap(true) {
		_ = p.end()
	}
}

// closeIfIdle ends the child in favor of others, unless it is at work.
func (p *process) closeIfIdle() bool {
	if !p.turns.TryAcquire() {
		return false
	}
	defer p.turns.Release()
	p.moved.Store(true)
	p.shut()
	return true
}

// end kills the process, unless it has ended by itself, and answers how it ended.
func (p *process) end() error {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	return p.cmd.Wait()
}

// excess is a limit that a program has exceeded. Sure is set if it was this program and no other of its child.
type excess struct {
	what string
	sure bool
}

// Error says what was exceeded, without the program.
func (e *excess) Error() string { return e.what }

// tooLong is what the CPU limit is for.
const tooLong = "computed for longer than it may"

// dead reports whether the child can be used no more.
func (p *process) dead() bool { return p.gone.Load() }

// verdict says why the exchange with the child broke off. A child whose output has ended has died by itself.
func (p *process) verdict(cause error) error {
	err := p.end()
	if !errors.Is(cause, io.EOF) && !errors.Is(cause, io.ErrUnexpectedEOF) && !errors.Is(cause, syscall.EPIPE) {
		return cause
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return errGone
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	text := p.wrote.String()
	switch {
	case exit.ExitCode() == exitCPU:
		return &excess{what: tooLong, sure: true}
	case strings.Contains(text, "stack overflow"), strings.Contains(text, "stack exceeds"):
		return &excess{what: "is nested too deeply", sure: true}
	case exit.ExitCode() == exitMemory, strings.Contains(text, "out of memory"), strings.Contains(text, "cannot allocate"),
		status.Signaled() && status.Signal() == syscall.SIGKILL: // the kernel's choice: ours comes after the end of the output
		return &excess{what: "took more memory than it may"}
	default:
		return fmt.Errorf("%w: it ended by itself: %w: %.500s", errGone, exit, text)
	}
}

// head keeps the beginning of what is written: the runtime's reason for its end is its first line.
type head struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write never fails; what is too much is dropped.
func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const kept = 4 << 10
	if room := kept - h.buf.Len(); room > 0 {
		h.buf.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// String is what was kept.
func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}
