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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// disturbFor is how long one rollout is disturbed: after that it has to end.
const disturbFor = 20 * time.Second

// TestChaos has rollouts in flight while whatever a stack is made of is killed, stalled and emptied at random, by a seed that it
// prints: services, NATS and its streams, the cluster, Git, and what PostgreSQL has in hand. In the end everything has to be as if
// nothing had been: completed, each gate passed once and together, one commit for each environment, a journal that names each gate.
//
// LOCKSTEP_CHAOS is the number of rollouts; without it the test is skipped, since `make chaos` runs it alone. LOCKSTEP_CHAOS_SEED
// repeats a run, as far as processes can be made to.
//
//nolint:paralleltest,tparallel // its rollouts come one after the other
func TestChaos(t *testing.T) {
	t.Parallel()
	rollouts, err := strconv.Atoi(os.Getenv("LOCKSTEP_CHAOS"))
	if err != nil || rollouts < 1 {
		t.Skip("LOCKSTEP_CHAOS, the number of rollouts, is not set; `make chaos` sets it")
	}
	seed := rand.Uint64() //nolint:gosec // it is printed
	if text := os.Getenv("LOCKSTEP_CHAOS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LOCKSTEP_CHAOS_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // faults need no secrecy
	done := map[string]int{}
	for i := range rollouts {
		// A stack of its own for each, gone before the next: what one leaves behind is not the next one's trouble, and a run may be as
		// long as it likes.
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			ctx, w := setup(t, oneStage())
			set, err := w.Push(ctx, "2.0.0", nil)
			if err != nil {
				t.Fatal(err)
			}
			r := w.roll(ctx, t, set, func(ctx context.Context, _ client.Rollout) error { return w.disturb(ctx, t, random, done) })
			w.expectAllGates(t, r)
			for _, row := range r.Journal {
				if row.ToState == "" || row.PrincipalType == "" {
					t.Errorf("%s: a row of the journal has no state, or nobody who did it: %+v", r.ID, row)
				}
			}
		})
	}
	faults := 0
	for _, n := range done {
		faults += n
	}
	t.Logf("%d rollouts completed through %d faults: %v", rollouts, faults, done)
	if least := 3 * rollouts; faults < least {
		t.Errorf("%d faults, want at least %d: the rollouts were hardly disturbed", faults, least)
	}
}

// disturb does one thing after the other to the stack, until ctx ends or disturbFor is over, and counts what it did.
func (w *world) disturb(ctx context.Context, t *testing.T, random *rand.Rand, done map[string]int) error {
	t.Helper()
	end := clock.System().Now().Add(disturbFor)
	parts := []string{"registry", "domain", "workflow", "relay", "nats", "simcluster", "git"}
	for clock.System().Now().Before(end) && ctx.Err() == nil {
		part := parts[random.IntN(len(parts))]
		pause := time.Duration(100+random.IntN(900)) * time.Millisecond
		var what string
		var err error
		switch random.IntN(6) {
		case 0, 1, 2:
			what = "killed"
			_, err = w.stack.Kill(part)
		case 3:
			what = "stalled"
			err = w.stall(ctx, part, pause)
		case 4:
			what, part = "emptied", "streams"
			_, err = w.stack.WipeStreams()
		default:
			what, part = "stalled and cut off", "database"
			err = w.stallDatabase(ctx, t, random, pause)
		}
		switch {
		case ended(ctx):
			return nil
		case fault.Is(err, fault.Unavailable): // it is being started again just now
		case err != nil:
			return err
		default:
			done[what+" "+part]++
		}
		_ = clock.Sleep(ctx, clock.System(), pause) // cut short when the rollout is over
	}
	return nil
}

// stall stops a process without ending it, and lets it go on after a while.
func (w *world) stall(ctx context.Context, part string, pause time.Duration) error {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(w.stack.LogFile(part))), "run", part+".pid"))
	if errors.Is(err, os.ErrNotExist) {
		return fault.New(fault.Unavailable, "%s is being started", part)
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fault.New(fault.Unavailable, "stall %s: %w", part, err)
	}
	_ = clock.Sleep(ctx, clock.System(), pause) // it goes on in any case
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return fault.New(fault.Unavailable, "let %s go on: %w", part, err)
	}
	return nil
}

// stallDatabase holds a table so that nobody gets at it, and then ends the sessions that wait: what a server that stalls and restarts
// does to a service. Sessions of others on the server are left alone.
func (w *world) stallDatabase(ctx context.Context, t *testing.T, random *rand.Rand, pause time.Duration) error {
	t.Helper()
	tables := [][2]string{{"workflow", "execution"}, {"domain", "cd_rollouts"}, {"domain", "outbox"}, {"workflow", "outbox"}}
	table := tables[random.IntN(len(tables))]
	name := pgx.Identifier{w.stack.Schema(table[0]), table[1]}.Sanitize()
	conn, err := pgx.Connect(ctx, pgtest.URL(t))
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
