package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

const (
	// lookInterval is how often a starting program is polled.
	lookInterval = 50 * time.Millisecond
	// graceful is how long a program has to stop.
	graceful = 5 * time.Second
)

// program describes a process.
type program struct {
	name string
	// stage orders the start: the programs of a stage start together, when the previous stage is ready.
	stage int
	// file is the executable's name if it differs from the program's, or its path.
	file string
	args []string
	// env is added to this process's environment.
	env []string
	// ready returns nil when the program works, otherwise the reason.
	ready func(ctx context.Context) error
}

// stages groups programs by stage.
func stages(programs []program) [][]program {
	var all [][]program
	for _, p := range programs {
		for len(all) <= p.stage {
			all = append(all, nil)
		}
		all[p.stage] = append(all[p.stage], p)
	}
	return all
}

// process is a started program.
type process struct {
	program

	logFile string
	cmd     *exec.Cmd
	stop    context.CancelFunc // stops it, gracefully and then forcibly
	ended   chan struct{}      // closed when it has ended
}

// spawn starts a program. It ends with this process, however this process ends.
func (c *Cluster) spawn(ctx context.Context, p program) (*process, error) {
	file := p.file
	if file == "" {
		file = p.name
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(c.config.Programs, "bin", file)
	}
	started := &process{program: p, logFile: c.LogFile(p.name), ended: make(chan struct{})}
	output, err := os.OpenFile(started.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", p.name, err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // ended by end, in the cluster's order
	started.stop = stop
	//nolint:gosec // programs of our own
	started.cmd = exec.CommandContext(ctx, file, p.args...)
	started.cmd.Dir, started.cmd.Stdout, started.cmd.Stderr = c.config.Dir, output, output
	started.cmd.Env = append(os.Environ(), p.env...)
	started.cmd.SysProcAttr = attributes()
	started.cmd.Cancel = func() error { return started.cmd.Process.Signal(syscall.SIGTERM) }
	started.cmd.WaitDelay = graceful
	begun := make(chan error)
	go func() {
		defer close(started.ended)
		defer func() { _ = output.Close() }()
		// The parent death signal is sent when the thread that started the child ends.
		runtime.LockOSThread()
		err := started.cmd.Start()
		begun <- err
		if err == nil {
			_ = started.cmd.Wait() // its log has the reason
		}
	}()
	if err := <-begun; err != nil {
		stop()
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return started, nil
}

// awaitReady waits until the program is ready.
func (p *process) awaitReady(ctx context.Context, c clock.Clock) error {
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %s; its last lines:\n%s", p.name, p.cmd.ProcessState, p.tail())
		default:
		}
		if clock.Sleep(ctx, c, lookInterval) != nil {
			return fmt.Errorf("%s is not ready: %w; its last lines:\n%s", p.name, err, p.tail())
		}
	}
}

// end stops the program, gracefully and then forcibly.
func (p *process) end() {
	p.stop()
	<-p.ended
	p.signalKill() // its children
}

// kill kills the program.
func (p *process) kill() {
	p.signalKill()
	<-p.ended
	p.stop()
}

// signalKill kills the whole process group.
func (p *process) signalKill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// tail returns the end of the log.
func (p *process) tail() string { return tail(p.logFile) }

// tail returns the end of a log.
func tail(file string) string {
	const lines = 15
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
