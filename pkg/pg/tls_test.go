package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// TestCertificatesOfTheDatabaseRotate: connections are encrypted both ways, whatever the URL says; one that is in use outlives a
// rotation, and the next is made with the new certificates.
func TestCertificatesOfTheDatabaseRotate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	first := certstest.New(t)
	s := pgtest.NewSecured(t, true, func(f certs.Files) { first.Write(t, f) })
	ours := first.Files(t, t.TempDir(), "ours")
	c := pg.Config{URL: s.URL + "?sslmode=disable", Schema: "secured", MaxConns: 4, TLS: ours}
	pool, err := pg.Open(ctx, c) // which waits until the server has read its new configuration
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	inUse, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Release()
	if !isEncrypted(ctx, t, inUse) {
		t.Error("the connection is not encrypted")
	}
	second := certstest.New(t)
	second.Write(t, ours)
	s.Rotate(t, func(f certs.Files) { second.Write(t, f) })
	pool.Reset() // idle connections of before would say nothing
	var fresh *pgxpool.Conn
	wait.For(t, "a connection after the rotation", func() bool { // the server does not read its files at once
		var err error
		fresh, err = pool.Acquire(ctx)
		return err == nil
	})
	defer fresh.Release()
	if !isEncrypted(ctx, t, fresh) || !isEncrypted(ctx, t, inUse) {
		t.Error("a connection is not encrypted after the rotation")
	}
	for name, files := range map[string]certs.Files{
		"a server that nobody vouches for": {CA: first.Files(t, t.TempDir(), "former").CA, Cert: ours.Cert, Key: ours.Key},
		"no certificate of ours":           {CA: ours.CA},
	} {
		brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		if pool, err := pg.Open(brief, pg.Config{URL: s.URL, TLS: files}); err == nil {
			pool.Close()
			t.Errorf("%s: was taken", name)
		}
		cancel()
	}
}

func isEncrypted(ctx context.Context, t *testing.T, conn *pgxpool.Conn) (encrypted bool) {
	t.Helper()
	if err := conn.QueryRow(ctx, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted); err != nil {
		t.Fatal(err)
	}
	return encrypted
}

// TestCertificatesNeedAHost: a socket has no name that a certificate could be for.
func TestCertificatesNeedAHost(t *testing.T) {
	t.Parallel()
	ours := certstest.New(t).Files(t, t.TempDir(), "ours")
	for url, files := range map[string]certs.Files{
		"postgres://lockstep@/postgres?host=/tmp": ours, "postgres://lockstep@db/postgres": {CA: "/nonexistent"},
	} {
		if _, err := pg.Open(t.Context(), pg.Config{URL: url, TLS: files}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s with %+v: %v", url, files, err)
		}
	}
}
