// Package pgtest gives every test a schema of its own on a real PostgreSQL server.
//
// The server is the one named by LOCKSTEP_TEST_DATABASE_URL or LOCKSTEP_DATABASE_URL; otherwise each test process starts
// a private one (see pkg/pg/local), copied from a template that the machine keeps, in a fraction of a second. Nothing is
// left running, and no goroutine either, so it can be used beside leak detectors and needs no TestMain.
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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/pg/local"
)

// Migration is one set of migrations, as pg.Migrate takes it.
type Migration struct {
	Name string
	FS   fs.FS
}

// maxConns is enough for a test; many run at the same time on one server.
const maxConns = 10

// New makes an empty schema, applies the migrations in the order given and returns a pool in it, with the configuration
// that pg.Open and a service need to use the same schema. The schema is dropped at the end of the test.
func New(t testing.TB, migrate ...Migration) (*pgxpool.Pool, pg.Config) {
	t.Helper()
	url, err := server()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	c := pg.Config{URL: url, Schema: schemaName(t.Name()), MaxConns: maxConns}
	create(t, c)
	for _, m := range migrate {
		if err := pg.Migrate(t.Context(), c, m.Name, m.FS); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	pool, err := pg.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool, c
}

// URL is the server itself, for the rare test that needs a database, or a role, and not just a schema.
func URL(t testing.TB) string {
	t.Helper()
	url, err := server()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return url
}

// create makes the schema and has it dropped after the test's own clean-up. Connections of the test that are still open
// then would make the drop wait, so it gives up after a while: the server goes away anyway.
func create(t testing.TB, c pg.Config) {
	t.Helper()
	name := pgx.Identifier{c.Schema}.Sanitize()
	if err := execute(t.Context(), c.URL, "CREATE SCHEMA "+name); err != nil {
		t.Fatalf("pgtest: create schema: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own context has ended
		defer cancel()
		if err := execute(ctx, c.URL, "DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Logf("pgtest: drop schema: %v", err)
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

// schemaName is unique on the server and still tells an operator whose it is.
func schemaName(test string) string {
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

// server is the server of this test process, started when the first test asks for it.
//
//nolint:gochecknoglobals // one per process is the point; written once, by sync.OnceValues
var server = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("LOCKSTEP_TEST_DATABASE_URL"); url != "" {
		return url, nil
	}
	if url, ok := local.FromEnvironment(); ok {
		return url, nil
	}
	base := filepath.Join(os.TempDir(), fmt.Sprintf("lockstep-pgtest-%d", os.Geteuid()))
	if err := os.MkdirAll(base, 0o711); err != nil { //nolint:gosec // the server's account passes through it
		return "", fmt.Errorf("make the servers' folder: %w", err)
	}
	dir, err := os.MkdirTemp(base, "server-")
	if err != nil {
		return "", fmt.Errorf("make the server's folder: %w", err)
	}
	s, err := local.Start(context.Background(), local.Config{
		DataDir: dir, Fast: true, Temporary: true, Template: filepath.Join(base, "template"), Log: slog.Default(),
	})
	if err != nil {
		return "", err
	}
	return s.URL(), nil
})
