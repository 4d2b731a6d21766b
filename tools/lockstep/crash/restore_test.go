package crash

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// A backup of PostgreSQL alone restores everything, as docs/how-to/back-up-and-restore.md instructs an operator: a rollout that
// was paused at a gate continues from there, with NATS empty and every stream created anew (D44). The account that makes the backup owns
// the tables and is no superuser, so row-level security applies to it, too; the account that restores it has another name.
func TestRestoredFromABackup(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pg_dump", "pg_restore"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s, which makes or reads a backup, is not installed", program)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	config := stack.Config{Dir: t.TempDir(), DatabaseURL: account(ctx, t), Fast: true}
	first, err := stack.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	before := &world{World: demo.NewWorld(first, oneStage(), clock.System()), stack: first}
	before.watcher = demo.NewWatcher(before.World, nil)
	if err := before.Create(ctx); err != nil {
		t.Fatal(err)
	}
	old, err := before.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	before.roll(ctx, t, old, nil)
	set, err := before.Push(ctx, "2.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	parked := before.park(ctx, t, set)
	schemas := []string{first.Schema("registry"), first.Schema("domain"), first.Schema("workflow")}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	dump := filepath.Join(t.TempDir(), "lockstep.dump")
	command(t, "env", "PGOPTIONS=-c lockstep.across=on", "pg_dump", "--enable-row-security", "--format=custom", "--file="+dump,
		"--schema="+schemas[0], "--schema="+schemas[1], "--schema="+schemas[2], config.DatabaseURL)
	drop(ctx, t, config.DatabaseURL, schemas)
	if err := os.RemoveAll(filepath.Join(config.Dir, "nats")); err != nil {
		t.Fatal(err)
	}
	config.DatabaseURL = account(ctx, t)
	command(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname="+config.DatabaseURL, dump)

	second, err := stack.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(second.Stop(), second.Discard(context.WithoutCancel(ctx))); err != nil {
			t.Error(err)
		}
	})
	after := demo.NewWorld(second, oneStage(), clock.System())
	restored, err := after.API.Rollout(ctx, parked.ID)
	if err != nil || restored.State != "PAUSED" || len(restored.Journal) < len(parked.Journal) {
		t.Fatalf("after the restore: %s with %d rows of journal, %v; want PAUSED with at least %d", restored.State, len(restored.Journal), err,
			len(parked.Journal))
	}
	if _, err := after.API.ResumeRollout(ctx, parked.ID, "restored"); err != nil {
		t.Fatal(err)
	}
	r, err := after.Follow(ctx, parked.ID, demo.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(demo.ExpectState(r, "COMPLETED", nil), after.ExpectGates(r),
		after.ExpectHealthy(ctx, after.Scenario.Stages[0], set)); err != nil {
		t.Error(err)
	}
	// Whose a new image is, is asked across organizations, as the owner of the tables.
	if _, err := after.Push(ctx, "3.0.0", nil); err != nil {
		t.Error(err)
	}
}

// account makes an account of the server that may make schemas and work as the service's role, and nothing else, and answers its URL.
func account(ctx context.Context, t *testing.T) string {
	t.Helper()
	server, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.WithoutCancel(ctx)) })
	name := "restore_" + strings.ToLower(rand.Text())
	if _, err := server.Exec(ctx, "CREATE ROLE "+name+" LOGIN; GRANT CREATE ON DATABASE "+pgx.Identifier{server.Config().Database}.Sanitize()+
		" TO "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if _, err := server.Exec(ctx, "DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name); err != nil {
			t.Error(err)
		}
	})
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.User(name)
	if err := pg.EnsureRole(ctx, pg.Config{URL: pgtest.URL(t)}, "lockstep_domain", address.String()); err != nil {
		t.Fatal(err)
	}
	return address.String()
}

// park starts a rollout and has it stand paused at its first gate.
func (w *world) park(ctx context.Context, t *testing.T, set client.VersionSet) client.Rollout {
	t.Helper()
	created, err := w.API.CreateRollout(ctx, client.NewRollout{VersionSet: set.ID, Reason: t.Name(), Again: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.API.PauseRollout(ctx, created.ID, "backup"); err != nil {
		t.Fatal(err)
	}
	var r client.Rollout
	err = w.Await(ctx, "the rollout to stand paused", func() (string, bool, error) {
		var err error
		r, err = w.API.Rollout(ctx, created.ID)
		return r.State, r.State == "PAUSED", err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// command runs a program to its end, and answers what it wrote.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}

func drop(ctx context.Context, t *testing.T, address string, schemas []string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, schema := range schemas {
		if _, err := conn.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{schema}.Sanitize()+" CASCADE"); err != nil {
			t.Fatal(err)
		}
	}
}
