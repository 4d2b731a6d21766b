package crash

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// A backup of PostgreSQL alone brings everything back, as deploy/README.md tells an operator to do it: a rollout that stood paused at a
// gate goes on from there, with NATS empty and every stream made anew (D44).
func TestRestoredFromABackup(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pg_dump", "pg_restore"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s, which makes or reads a backup, is not installed", program)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	config := stack.Config{Dir: t.TempDir(), DatabaseURL: pgtest.URL(t), Fast: true}
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
	command(t, "pg_dump", "--format=custom", "--file="+dump, "--schema="+schemas[0], "--schema="+schemas[1], "--schema="+schemas[2], config.DatabaseURL)
	drop(ctx, t, config.DatabaseURL, schemas)
	if err := os.RemoveAll(filepath.Join(config.Dir, "nats")); err != nil {
		t.Fatal(err)
	}
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
		t.Fatalf("after the restore: %s with %d rows of journal, %v; want PAUSED with at least %d", restored.State, len(restored.Journal), err, len(parked.Journal))
	}
	if _, err := after.API.ResumeRollout(ctx, parked.ID, "restored"); err != nil {
		t.Fatal(err)
	}
	r, err := after.Follow(ctx, parked.ID, demo.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(demo.ExpectState(r, "COMPLETED", nil), after.ExpectGates(r), after.ExpectHealthy(ctx, after.Scenario.Stages[0], set)); err != nil {
		t.Error(err)
	}
}

// park starts a rollout and has it stand paused at its first gate.
func (w *world) park(ctx context.Context, t *testing.T, set client.VersionSet) client.Rollout {
	t.Helper()
	created, err := w.API.CreateRollout(ctx, set.ID, t.Name())
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

func drop(ctx context.Context, t *testing.T, url string, schemas []string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
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
