package crash

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
)

// disturb does one thing after the other to the stack, until ctx ends or disturbFor is over, and counts what it did.
func (w *world) disturb(ctx context.Context, random *rand.Rand, done map[string]int) error {
	end := clock.System().Now().Add(disturbFor)
	for clock.System().Now().Before(end) && ctx.Err() == nil {
		pause := time.Duration(100+random.IntN(900)) * time.Millisecond
		what, err := w.disturbOnce(ctx, random, pause)
		switch {
		case ended(ctx):
			return nil
		case fault.Is(err, fault.Unavailable): // it is being started again just now
		case err != nil:
			return err
		default:
			done[what]++
		}
		_ = clock.Sleep(ctx, clock.System(), pause) // cut short when the rollouts are over
	}
	return nil
}

// disturbOnce does one thing and says what. A stall lasts for a pause.
func (w *world) disturbOnce(ctx context.Context, random *rand.Rand, pause time.Duration) (what string, err error) {
	parts := []string{"registry", "domain", "workflow", "relay", "nats", "simcluster", "git"}
	part := parts[random.IntN(len(parts))]
	switch random.IntN(8) {
	case 0, 1, 2:
		_, err = w.stack.Kill(part)
		return "killed " + part, err
	case 3:
		pid, err := w.processOf(part)
		if err != nil {
			return "", err
		}
		return "stalled " + part, stall(ctx, []int{pid}, pause)
	case 4:
		_, err = w.stack.WipeStreams()
		return "emptied streams", err
	case 5:
		return "stalled and cut off database", w.stallTable(ctx, random, pause)
	default:
		if _, shared := postgres.FromEnvironment(); shared {
			return "", fault.New(fault.Unavailable, "the server is not this stack's alone")
		}
		sessions, err := w.sessions(ctx)
		if err != nil || len(sessions) == 0 {
			return "", fault.New(fault.Unavailable, "PostgreSQL: %d sessions, %w", len(sessions), err)
		}
		if random.IntN(2) == 0 {
			return "stalled database", stall(ctx, sessions, pause)
		}
		// A session that dies takes the whole server down, which comes back by recovery: its memory might be damaged.
		return "crashed database", signal(sessions[:1], syscall.SIGKILL)
	}
}

// processOf is the process of a part.
func (w *world) processOf(part string) (int, error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(w.stack.LogFile(part))), "run", part+".pid"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fault.New(fault.Unavailable, "%s is being started", part)
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// sessions are the processes in which PostgreSQL serves the stack.
func (w *world) sessions(ctx context.Context) ([]int, error) {
	conn, err := pgx.Connect(ctx, w.stack.Endpoints().Database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// stall pauses processes, and lets them continue after a while.
func stall(ctx context.Context, pids []int, pause time.Duration) error {
	err := signal(pids, syscall.SIGSTOP)
	_ = clock.Sleep(ctx, clock.System(), pause) // they continue in any case
	return errors.Join(err, signal(pids, syscall.SIGCONT))
}

// signal sends each process a signal. One that is gone is Unavailable: another will have taken its place.
func signal(pids []int, s syscall.Signal) error {
	var err error
	for _, pid := range pids {
		if failed := syscall.Kill(pid, s); failed != nil {
			err = fault.New(fault.Unavailable, "send %s to process %d: %w", s, pid, failed)
		}
	}
	return err
}

// stallTable holds a table so that nobody gets at it, and then ends the sessions that wait: what a server that stalls and restarts
// does to a service. Sessions of others on the server are left alone.
func (w *world) stallTable(ctx context.Context, random *rand.Rand, pause time.Duration) error {
	tables := [][2]string{{"workflow", "execution"}, {"domain", "cd_rollouts"}, {"domain", "outbox"}, {"workflow", "outbox"}}
	table := tables[random.IntN(len(tables))]
	name := pgx.Identifier{w.stack.Schema(table[0]), table[1]}.Sanitize()
	err := w.holdTable(ctx, name, pause)
	if err != nil && ctx.Err() == nil {
		return fault.New(fault.Unavailable, "PostgreSQL, which is coming back: %w", err)
	}
	return err
}

func (w *world) holdTable(ctx context.Context, name string, pause time.Duration) error {
	conn, err := pgx.Connect(ctx, w.stack.Endpoints().Database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	_ = clock.Sleep(ctx, clock.System(), pause) // the table is let go in any case
	_, err = tx.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted AND pid <> pg_backend_pid()`, name)
	return err
}
