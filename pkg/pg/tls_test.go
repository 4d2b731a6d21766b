package pg_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/pg/local"
	"github.com/lockstep-cd/lockstep/pkg/port/porttest"
)

// secured is a real server that takes only encrypted connections from those whom its authority vouches for.
type secured struct {
	url    string
	files  certs.Files
	server *local.Server
}

func newSecured(t *testing.T, a *certstest.Authority) *secured {
	t.Helper()
	s := &secured{}
	address := porttest.FreeAddress(t)
	dir, err := os.MkdirTemp("", "lockstep-pg-test-") //nolint:usetesting // t.TempDir is open to its owner only, and the server has an account of its own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	s.server, err = local.Start(t.Context(), local.Config{DataDir: filepath.Join(dir, "server"), Fast: true, Temporary: true, Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.server.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.url = "postgres://lockstep@" + address + "/postgres"
	data := filepath.Join(s.server.DataDir(), "data")
	// The server reads its certificates as its own account, which owns its data.
	s.files = certs.Files{Cert: filepath.Join(data, "tls.crt"), Key: filepath.Join(data, "tls.key"), CA: filepath.Join(data, "ca.crt")}
	s.rotate(t, a)
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("local all all trust\nhostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.tell(t, "ALTER SYSTEM SET ssl = on", "ALTER SYSTEM SET ssl_cert_file = 'tls.crt'", "ALTER SYSTEM SET ssl_key_file = 'tls.key'",
		"ALTER SYSTEM SET ssl_ca_file = 'ca.crt'", "SELECT pg_reload_conf()")
	return s
}

// rotate gives the server certificates of an authority.
func (s *secured) rotate(t *testing.T, a *certstest.Authority) {
	t.Helper()
	a.Write(t, s.files)
	owner, err := os.Stat(filepath.Dir(s.files.Key))
	if err != nil {
		t.Fatal(err)
	}
	as, ok := owner.Sys().(*syscall.Stat_t)
	if !ok {
		t.Skip("this system's files have no owners")
	}
	for _, file := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if err := os.Chown(file, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// tell runs statements over the server's socket.
func (s *secured) tell(t *testing.T, statements ...string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), s.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// TestCertificatesOfTheDatabaseRotate: connections are encrypted both ways, whatever the URL says; one that is in use outlives a
// rotation, and the next is made with the new certificates.
func TestCertificatesOfTheDatabaseRotate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	first := certstest.New(t)
	s := newSecured(t, first)
	ours := first.Files(t, t.TempDir(), "ours")
	c := pg.Config{URL: s.url + "?sslmode=disable", Schema: "secured", MaxConns: 4, TLS: ours}
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
	s.rotate(t, second)
	second.Write(t, ours)
	s.tell(t, "SELECT pg_reload_conf()")
	pool.Reset() // idle connections of before would say nothing
	fresh, err := pool.Acquire(ctx)
	for ; err != nil && ctx.Err() == nil; fresh, err = pool.Acquire(ctx) { // the server reads its files when it comes to it
		if clock.Sleep(ctx, clock.System(), 20*time.Millisecond) != nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("after the rotation: %v", err)
	}
	defer fresh.Release()
	if !isEncrypted(ctx, t, fresh) || !isEncrypted(ctx, t, inUse) {
		t.Error("a connection is not encrypted after the rotation")
	}
	for name, files := range map[string]certs.Files{
		"a server that nobody vouches for": {CA: first.Files(t, t.TempDir(), "former").CA, Cert: ours.Cert, Key: ours.Key},
		"no certificate of ours":           {CA: ours.CA},
	} {
		brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		if pool, err := pg.Open(brief, pg.Config{URL: s.url, TLS: files}); err == nil {
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
