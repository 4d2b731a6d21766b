//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// server is what it takes to launch a postmaster.
type server struct {
	bin                     binaries
	who                     *account
	root, data, socket, log string
	host, port              string
	fast                    bool
}

func (s server) command() *exec.Cmd {
	settings := []string{
		"listen_addresses=" + s.host, "unix_socket_directories=" + s.socket, "port=" + s.port, "unix_socket_permissions=0700",
		"max_connections=200", "shared_buffers=64MB", "jit=off", "timezone=UTC", "log_timezone=UTC",
		"log_destination=stderr", "logging_collector=off", "log_line_prefix=%m [%p] ",
		// Parallel queries would need more shared memory than a container's 64 MB /dev/shm may have.
		"max_parallel_workers_per_gather=0",
	}
	if s.fast {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")
	}
	args := []string{"-D", s.data}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(s.bin.path("postgres"), args...) //nolint:gosec,noctx // a path that was found; it outlives the context of its start
	cmd.Dir, cmd.Env = "/", environment(s.bin)
	// A process group of its own keeps the terminal's Ctrl-C away: the services stop first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.who.credential(), Setpgid: true}
	return cmd
}

// launch starts the postmaster, its output appended to the log.
func launch(s server, temporary bool) (process, error) {
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	if temporary {
		return launchTemporary(cmd, s)
	}
	return launchWatched(cmd, s.fast)
}

// watched is a postmaster that a goroutine waits for.
type watched struct {
	pid  int
	done chan struct{}
}

func launchWatched(cmd *exec.Cmd, fast bool) (process, error) {
	dieWithParent(cmd.SysProcAttr, fast)
	p := &watched{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel sends the death signal when the thread that forked ends, so that thread stays for as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID is the process id of the postmaster.
func (p *watched) PID() int { return p.pid }

// Done is closed when the postmaster has ended.
func (p *watched) Done() <-chan struct{} { return p.done }

// Ended reports whether the postmaster has ended.
func (p *watched) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// End shuts the postmaster down.
func (p *watched) End() error { return shutDown(p.pid, p.Ended) }

// reaped is a postmaster that a small shell process ends, and whose folder it removes, when this process has ended.
type reaped struct {
	pid    int
	reaper *exec.Cmd
	// pipe is the end that this process holds; the reaper waits until nobody does. It is a bare descriptor because an
	// os.File closes itself once nobody refers to it.
	pipe int
}

const reaperScript = `trap '' INT TERM HUP
read -r _
kill -QUIT "$1" 2>/dev/null
i=0
while [ -e "$2/data/postmaster.pid" ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i+1)); done
rm -rf "$2" "$3"`

func launchTemporary(cmd *exec.Cmd, s server) (process, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &reaped{pid: cmd.Process.Pid}
	var pipe [2]int
	syscall.ForkLock.RLock() // a program forked in between would keep the pipe open
	err := syscall.Pipe(pipe[:])
	if err == nil {
		syscall.CloseOnExec(pipe[0])
		syscall.CloseOnExec(pipe[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), cmd.Process.Kill())
	}
	p.pipe = pipe[1]
	read := os.NewFile(uintptr(pipe[0]), "pipe")
	defer func() { _ = read.Close() }()
	p.reaper = exec.Command("/bin/sh", "-c", reaperScript, "sh", strconv.Itoa(p.pid), s.root, //nolint:gosec,noctx // arguments of ours; it outlives us
		s.socket)
	p.reaper.Stdin = read
	p.reaper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.reaper.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the reaper: %w", err), cmd.Process.Kill(), syscall.Close(p.pipe))
	}
	return p, nil
}

// PID is the process id of the postmaster.
func (p *reaped) PID() int { return p.pid }

// Done is nil: nobody waits for the postmaster.
func (p *reaped) Done() <-chan struct{} { return nil }

// Ended reports whether the postmaster has ended, and leaves no zombie.
func (p *reaped) Ended() bool {
	pid, err := syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
	return pid == p.pid || errors.Is(err, syscall.ECHILD)
}

// End has the reaper do its work now.
func (p *reaped) End() error {
	if err := syscall.Close(p.pipe); err != nil {
		return fmt.Errorf("end the server: %w", err)
	}
	defer p.Ended() // leaves no zombie
	if err := p.reaper.Wait(); err != nil {
		return fmt.Errorf("end the server: %w", err)
	}
	return nil
}

// shutDown asks a postmaster to end: fast (connections are broken, data is written), then at once, then not at all.
func shutDown(pid int, gone func() bool) error {
	for _, step := range []struct {
		signal syscall.Signal
		within time.Duration
	}{{syscall.SIGINT, 20 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		if gone() {
			return nil
		}
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end the server %d: %w", pid, err)
		}
		if waitUntil(context.Background(), step.within, gone) {
			return nil
		}
	}
	return fmt.Errorf("the server %d does not end", pid)
}

// waitUntil looks every few milliseconds whether it holds.
func waitUntil(ctx context.Context, within time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for !holds() {
		if clock.Sleep(ctx, clock.System(), 5*time.Millisecond) != nil {
			return holds()
		}
	}
	return true
}

// freePort is a TCP port that nobody uses at the moment.
func freePort(ctx context.Context) (uint32, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find a free port: listening on %v", l.Addr())
	}
	return uint32(addr.Port), nil
}
