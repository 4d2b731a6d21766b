package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

const (
	// A child that dies is started again after a delay that doubles, and begins anew after a good while of health.
	firstBackoff = 50 * time.Millisecond
	mostBackoff  = 5 * time.Second
	goodWhile    = 10 * time.Second
	// graceful is how long a child has to end by itself when asked.
	graceful = 10 * time.Second
)

// ExitConfiguration is the exit code of a child whose configuration is wrong: starting it again will not mend that. (2 would be a
// panic as well.)
const ExitConfiguration = 78

// process supervises one child.
type process struct {
	name string
	// args of this executable.
	args  []string
	ready func(context.Context) error
	// where its PID and its output go.
	pidFile, logFile string
	environment      []string
	clock            clock.Clock
	log              *slog.Logger

	stop  context.CancelFunc
	ended chan struct{}

	mu       sync.Mutex
	pid      int // 0 while it is not running
	starts   int
	logStart int64         // the size of its log in bytes when it was started last: what is before is of earlier runs
	hopeless error         // why it is no longer started
	killed   bool          // we have ended it ourselves: no reason to wait before starting it again
	between  func() error  // done once it has died, before it is started again
	back     chan struct{} // closed when it may be started again; nil when nobody keeps it away
}

// start begins to supervise. It does not wait for anything.
func (p *process) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx)) // ended by stop, in the stack's order
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		// The parent death signal is sent when the *thread* that started the child ends.
		runtime.LockOSThread()
		p.supervise(ctx)
	}()
}

func (p *process) supervise(ctx context.Context) {
	backoff := firstBackoff
	for {
		began := p.clock.Now()
		err := p.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == ExitConfiguration {
			last := p.tail(5)
			p.mu.Lock()
			p.hopeless = fmt.Errorf("%s refused its configuration:\n%s", p.name, last)
			p.mu.Unlock()
			return
		}
		if p.afterDeath() || p.clock.Now().Sub(began) > goodWhile {
			backoff = firstBackoff
		}
		if !p.awaitBack(ctx) {
			return
		}
		p.log.WarnContext(ctx, "process ended, starting it again", telemetry.KeyPart, p.name, telemetry.KeyError, err, telemetry.KeyDelay,
			backoff.Milliseconds())
		if clock.Sleep(ctx, p.clock, backoff) != nil {
			return
		}
		backoff = min(2*backoff, mostBackoff)
	}
}

// afterDeath does what was to be done between two lives, and reports whether the death was our doing.
func (p *process) afterDeath() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	killed, between := p.killed, p.between
	p.killed, p.between = false, nil
	if between != nil {
		if err := between(); err != nil {
			p.hopeless = fmt.Errorf("%s: between two lives: %w", p.name, err)
		}
	}
	return killed
}

// awaitBack waits until nobody keeps the child away. False when ctx ends before.
func (p *process) awaitBack(ctx context.Context) bool {
	p.mu.Lock()
	back := p.back
	p.mu.Unlock()
	if back == nil {
		return true
	}
	select {
	case <-back:
		return true
	case <-ctx.Done():
		return false
	}
}

// keepAway kills the child, which is not started again before bringBack.
func (p *process) keepAway() error {
	p.mu.Lock()
	if p.back == nil {
		p.back = make(chan struct{})
	}
	p.mu.Unlock()
	_, err := p.kill(nil)
	return err
}

func (p *process) isAway() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.back != nil
}

// bringBack lets a child that is kept away be started again, and answers how many times it had been started before.
func (p *process) bringBack() (starts int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.back != nil {
		close(p.back)
		p.back = nil
	}
	return p.starts
}

// kill ends the child as a crash would. between, which may be nil, is done before it is started again.
func (p *process) kill(between func() error) (starts int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return p.starts, fault.New(fault.Unavailable, "kill %s: it is not running", p.name)
	}
	p.killed, p.between = true, between
	if err := signalGroup(p.pid, syscall.SIGKILL); err != nil {
		return p.starts, fmt.Errorf("kill %s: %w", p.name, err)
	}
	return p.starts, nil
}

// once runs the child until it ends, or until ctx does, and leaves nothing of it running.
func (p *process) once(ctx context.Context) error {
	output, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of %s: %w", p.name, err)
	}
	defer func() { _ = output.Close() }()
	before, err := output.Stat()
	if err != nil {
		return fmt.Errorf("log of %s: %w", p.name, err)
	}
	program, err := executable()
	if err != nil {
		return fmt.Errorf("find this executable: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, p.args...) //nolint:gosec // this executable, with arguments of our own
	cmd.Env, cmd.Stdout, cmd.Stderr = p.environment, output, output
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = graceful
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	pid := cmd.Process.Pid
	p.mark(pid, before.Size())
	defer func() {
		_ = signalGroup(pid, syscall.SIGKILL) // what it had started itself
		p.mark(0, before.Size())
	}()
	if err := writeFile(p.pidFile, []byte(strconv.Itoa(pid)+"\n")); err != nil {
		p.log.WarnContext(ctx, "no pid file", telemetry.KeyPart, p.name, telemetry.KeyError, err)
	}
	defer func() { _ = os.Remove(p.pidFile) }()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return fmt.Errorf("%s ended without being asked to", p.name)
}

// mark stores the PID of the child, 0 when it has ended, and the size of its log in bytes before it.
func (p *process) mark(pid int, logStart int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.logStart = pid, logStart
	if pid != 0 {
		p.starts++
	}
}

// status is the child's PID, 0 while it is not running, how many times it was started, and why it will not be again.
func (p *process) status() (pid, starts int, hopeless error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid, p.starts, p.hopeless
}

// waitReady waits until the child answers that it is ready.
func (p *process) waitReady(ctx context.Context) error {
	for {
		if _, _, err := p.status(); err != nil {
			return err
		}
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		if clock.Sleep(ctx, p.clock, 20*time.Millisecond) != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("wait for %s to be ready: %w", p.name, ctx.Err())
			}
			return fmt.Errorf("%s is not ready: %w; its last lines:\n%s", p.name, err, p.tail(10))
		}
	}
}

// end stops the child and waits until it is gone.
func (p *process) end() {
	p.stop()
	<-p.ended
}

// tail is the last lines of what the child has said in its present life, or in its last one.
func (p *process) tail(lines int) string {
	p.mu.Lock()
	logStart := p.logStart
	p.mu.Unlock()
	return tail(p.logFile, logStart, lines, nil)
}

// tail is the last lines of a log, from a byte of it on, that matter (nil: all do), each with the name of the log.
func tail(path string, from int64, lines int, matters func(line string) bool) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	text = text[min(from, int64(len(text))):]
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if matters != nil {
		all = slices.DeleteFunc(all, func(line string) bool { return !matters(line) })
	}
	all = all[max(0, len(all)-lines):]
	name := "  " + filepath.Base(path) + ": "
	if len(all) == 0 || len(text) == 0 {
		return name + "(nothing)"
	}
	return name + strings.Join(all, "\n"+name)
}
