// Package pgtest gives every test tables of its own on a real PostgreSQL server.
//
// The server is the one named by LOCKSTEP_TEST_DATABASE_URL or LOCKSTEP_DATABASE_URL; otherwise each test process starts
// a private one (see pkg/testkit/postgres), copied from a template that the machine keeps, in a fraction of a second. Its files are in
// memory where there is enough, which a TMPDIR switches off: on a disk, to copy a database for each test is most of what tests take.
// Nothing is left running, and no goroutine either, so it can be used beside leak detectors and needs no TestMain.
//
// On a private server, a test with migrations has a database, copied from one in which they were applied once: to apply them for each test
// was most of what the tests of a service took. Any other test has a schema, and so has each on a server named by the environment, where
// databases would be left behind.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
)

// Migration is one set of migrations, as pg.Migrate takes it.
type Migration struct {
	Name string
	FS   fs.FS
	// Then is done when they have been applied, by the tables' owner: roles, privileges. Those of one process that have the same migrations do
	// the same then. Nil: nothing.
	Then func(context.Context, pg.Config) error
}

// maxConns is enough for a test; many run at the same time on one server.
const maxConns = 10

// New is a pool in a schema that has the migrations, applied in the order given, and nothing else, with the configuration that pg.Open and
// a service need to use the same schema. It is dropped at the end of the test.
func New(tb testing.TB, migrate ...Migration) (*pgxpool.Pool, pg.Config) {
	tb.Helper()
	s, err := running()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	c := pg.Config{URL: s.url, Schema: uniqueName(tb.Name()), MaxConns: maxConns}
	if s.private && len(migrate) > 0 {
		c = copied(tb, c, s.strategy, migrate)
	} else {
		create(tb, c.URL, "SCHEMA", c.Schema, "", "CASCADE")
		if err := apply(tb.Context(), c, migrate); err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
	}
	pool, err := pg.Open(tb.Context(), c)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool, c
}

// As is a pool in the same schema that works as a role, made if it is missing: what a service has in production, while New's
// pool is its owner's.
func As(tb testing.TB, c pg.Config, role string) *pgxpool.Pool {
	tb.Helper()
	if err := pg.EnsureRole(tb.Context(), c, role); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	c.Role = role
	pool, err := pg.Open(tb.Context(), c)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// URL is the server itself, for the rare test that needs a database, or a role, and not just a schema.
func URL(tb testing.TB) string {
	tb.Helper()
	s, err := running()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return s.url
}

// apply brings a schema, made if it is missing, to the end of the migrations.
func apply(ctx context.Context, c pg.Config, migrate []Migration) error {
	for _, m := range migrate {
		if err := pg.Migrate(ctx, c, m.Name, m.FS); err != nil {
			return err
		}
		if m.Then != nil {
			if err := m.Then(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes a schema or a database and has it dropped after the test's own clean-up. Connections of the test that are still open
// then may make the drop wait, so it gives up after a while: the server goes away anyway.
func create(tb testing.TB, url, kind, name, with, drop string) {
	tb.Helper()
	what := kind + " " + pgx.Identifier{name}.Sanitize()
	if err := execute(tb.Context(), url, "CREATE "+what+with); err != nil {
		tb.Fatalf("pgtest: create %s: %v", what, err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) //nolint:usetesting // the test's own context has ended
		defer cancel()
		if err := execute(ctx, url, "DROP "+what+" "+drop); err != nil {
			tb.Logf("pgtest: drop %s: %v", what, err)
		}
	})
}

func execute(ctx context.Context, url, sql string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// uniqueName is unique on the server and still shows an operator which test it belongs to.
func uniqueName(test string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, test)
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return fmt.Sprintf("test_%.30s_%s", word, hex.EncodeToString(b[:]))
}

// server is where tests have their tables.
type server struct {
	url string
	// private reports whether it goes away with this process.
	private bool
	// strategy is how it copies a database best, as CREATE DATABASE takes it; empty leaves that to the server.
	strategy string
}

// running is the server of this test process, started when the first test asks for it.
var running = sync.OnceValues(func() (server, error) {
	if url := os.Getenv("LOCKSTEP_TEST_DATABASE_URL"); url != "" {
		return server{url: url}, nil
	}
	if url, ok := postgres.FromEnvironment(); ok {
		return server{url: url}, nil
	}
	templates, err := ours(os.TempDir())
	if err != nil {
		return server{}, err
	}
	base, memory := templates, inMemory()
	if memory != "" {
		if base, err = ours(memory); err != nil {
			return server{}, err
		}
	}
	sweep(base, clock.System().Now())
	dir, err := os.MkdirTemp(base, serverPrefix)
	if err != nil {
		return server{}, fmt.Errorf("make the server's folder: %w", err)
	}
	s, err := postgres.Start(context.Background(), postgres.Config{
		DataDir: dir, Fast: true, Temporary: true, Template: filepath.Join(templates, "template"), Log: slog.Default(),
	})
	if err != nil {
		_ = os.RemoveAll(dir) // nothing runs in it
		return server{}, err
	}
	found := server{url: s.URL(), private: true}
	if memory != "" {
		found.strategy = asFiles
	}
	return found, nil
})

const (
	serverPrefix = "server-"
	// abandoned is how old the folder of a server must be to be removed by another process. A younger one may not be locked yet.
	abandoned = time.Hour
)

// sweep removes what servers have left whose test process was killed together with what cleans up after it: it would stay in memory.
func sweep(base string, now time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(base, serverPrefix+"*")) // the pattern is well formed
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || now.Sub(info.ModTime()) < abandoned {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir) // another process may do the same
		}
		_ = lock.Close()
	}
}

// ours is the folder of test servers in another, made if it is missing.
func ours(in string) (string, error) {
	base := filepath.Join(in, fmt.Sprintf("lockstep-pgtest-%d", os.Geteuid()))
	if err := os.MkdirAll(base, 0o711); err != nil {
		return "", fmt.Errorf("make the servers' folder: %w", err)
	}
	if info, err := os.Lstat(base); err != nil || !info.IsDir() || !owned(info) {
		return "", fmt.Errorf("%s belongs to another user: remove it", base)
	}
	return base, nil
}

// owned reports whether a file is this process's own: the name of the folder can be foreseen.
func owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
