//go:build unix

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Pair is a primary and its synchronous standby: what the primary acknowledges the standby has on its disk. For tests of a failover.
type Pair struct {
	dir       string
	bin       binaries
	who       *account
	ports     []string
	processes []process
	// frozen are processes that Freeze has stopped.
	frozen []int
}

// StartPair starts a pair in a folder, on two free ports of the loopback interface.
func StartPair(ctx context.Context, dir string, ports [2]string, log *slog.Logger) (_ *Pair, err error) {
	p := &Pair{ports: ports[:], processes: make([]process, len(ports))}
	if p.who, err = serverAccount(); err != nil {
		return nil, err
	}
	if dir, err = place(ctx, log, dir, p.who); err != nil {
		return nil, err
	}
	p.dir = dir
	if p.bin, err = findBinaries(ctx, log, p.who, 0); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	primary, standby := filepath.Join(dir, "primary"), filepath.Join(dir, "standby")
	if err := initialise(ctx, p.bin, p.who, primary, true); err != nil {
		return nil, err
	}
	if err := p.launch(ctx, 0, dir, primary); err != nil {
		return nil, err
	}
	err = replace(standby, p.who, func(fresh string) error {
		return p.program(ctx, "pg_basebackup", "-d", p.url(0), "-D", fresh, "-R", "-X", "stream", "-C", "-S", "standby", "--no-sync",
			"--checkpoint=fast")
	})
	if err != nil {
		return nil, err
	}
	if err := p.launch(ctx, 1, dir, standby); err != nil {
		return nil, err
	}
	// Synchronous only from here on: without a standby every commit would wait.
	if err := p.exec(ctx, 0, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"); err != nil {
		return nil, err
	}
	return p, p.awaitTrue(ctx, 0, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
}

func (p *Pair) launch(ctx context.Context, server int, dir, data string) error {
	socket, err := socketDir(data, p.who)
	if err != nil {
		return err
	}
	p.processes[server], err = launch(serverOf(p, server, dir, data, socket), false)
	if err != nil {
		return err
	}
	return p.awaitTrue(ctx, server, "SELECT true")
}

func serverOf(p *Pair, i int, dir, data, socket string) server {
	return server{
		bin: p.bin, who: p.who, root: dir, data: data, socket: socket, host: "127.0.0.1", port: p.ports[i],
		log: filepath.Join(dir, filepath.Base(data)+".log"),
	}
}

// program runs one of PostgreSQL's programs as the servers' account.
func (p *Pair) program(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, p.bin.path(name), args...) //nolint:gosec // a path that was found and arguments of ours
	cmd.Dir, cmd.Env = "/", environment(p.bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.who.credential()}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, lastLines(out.Bytes(), 5))
	}
	return nil
}

func (p *Pair) url(server int) string {
	return "postgres://" + superuser + "@127.0.0.1:" + p.ports[server] + "/postgres?sslmode=disable"
}

// URL names both servers, as a service is configured.
func (p *Pair) URL() string {
	return "postgres://" + superuser + "@127.0.0.1:" + p.ports[0] + ",127.0.0.1:" + p.ports[1] + "/postgres?sslmode=disable"
}

func (p *Pair) exec(ctx context.Context, server int, statements ...string) error {
	conn, err := pgx.Connect(ctx, p.url(server))
	if err != nil {
		return fmt.Errorf("connect to server %d of the pair: %w", server, err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// awaitTrue waits until a query answers true.
func (p *Pair) awaitTrue(ctx context.Context, server int, query string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for {
		done := false
		conn, err := pgx.Connect(ctx, p.url(server))
		if err == nil {
			err = conn.QueryRow(ctx, query).Scan(&done)
			_ = conn.Close(ctx)
		}
		if err == nil && done {
			return nil
		}
		if clock.Sleep(ctx, clock.System(), 20*time.Millisecond) != nil {
			return errors.Join(fmt.Errorf("server %d of the pair: not met: %s", server, query), err)
		}
	}
}

// Another starts one more standby of the primary, on a port of the loopback interface, and answers its URL. Once the pair's own standby is
// promoted it stays behind, on the timeline of before.
func (p *Pair) Another(ctx context.Context, port string) (url string, err error) {
	server := len(p.ports)
	p.ports, p.processes = append(p.ports, port), append(p.processes, nil)
	data := filepath.Join(p.dir, fmt.Sprintf("standby%d", server))
	err = replace(data, p.who, func(fresh string) error {
		return p.program(ctx, "pg_basebackup", "-d", p.url(0), "-D", fresh, "-R", "-X", "stream", "--no-sync", "--checkpoint=fast")
	})
	if err != nil {
		return "", err
	}
	return p.url(server), p.launch(ctx, server, p.dir, data)
}

// KillPrimary ends the primary as kill -9 does.
func (p *Pair) KillPrimary() error {
	if err := syscall.Kill(p.processes[0].PID(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the primary: %w", err)
	}
	<-p.processes[0].Done()
	return nil
}

// Promote makes the standby the primary.
func (p *Pair) Promote(ctx context.Context) error {
	return p.exec(ctx, 1, "SELECT pg_promote(true, 60)")
}

// Stop ends all of them and removes what they have stored.
func (p *Pair) Stop() {
	for _, pid := range p.frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // one that has ended meanwhile is as good
	}
	for _, one := range p.processes {
		if one != nil && !one.Ended() {
			_ = one.End() // the folder is removed all the same
		}
	}
	_ = os.RemoveAll(p.dir)
}

// StandbyURL is that of the standby alone.
func (p *Pair) StandbyURL() string { return p.url(1) }

// Hold has the standby receive what is committed, and not show it, until Follow; the primary continues.
func (p *Pair) Hold(ctx context.Context) error {
	return p.exec(ctx, 1, "SELECT pg_wal_replay_pause()")
}

// Follow ends Hold.
func (p *Pair) Follow(ctx context.Context) error {
	return p.exec(ctx, 1, "SELECT pg_wal_replay_resume()")
}

// Freeze has the standby answer nothing, not even with an error, until Stop. The primary no longer waits for it.
func (p *Pair) Freeze(ctx context.Context) error {
	if err := p.exec(ctx, 0, "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, p.url(1))
	if err != nil {
		return fmt.Errorf("connect to the standby: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
	if err != nil {
		return fmt.Errorf("list the processes of the standby: %w", err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return fmt.Errorf("list the processes of the standby: %w", err)
	}
	for _, pid := range append(pids, p.processes[1].PID()) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stop process %d of the standby: %w", pid, err)
		}
		p.frozen = append(p.frozen, pid)
	}
	return nil
}
