package pgtest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
)

// Secured is a server of a test's own that takes encrypted connections only, at 127.0.0.1.
type Secured struct {
	// URL is where it is, without what belongs to TLS.
	URL string

	server *postgres.Server
	files  certs.Files
}

// NewSecured starts one. write puts its certificate, its key and the authority of clients into the files; asking is whether clients have to
// show a certificate of that authority.
func NewSecured(tb testing.TB, asking bool, write func(certs.Files)) *Secured {
	tb.Helper()
	s := &Secured{}
	var address string
	s.server, address = listening(tb)
	s.URL = "postgres://lockstep@" + address + "/postgres"
	data := filepath.Join(s.server.DataDir(), "data")
	// The server reads its certificates as its own account, which owns its data.
	s.files = certs.Files{Cert: filepath.Join(data, "tls.crt"), Key: filepath.Join(data, "tls.key"), CA: filepath.Join(data, "ca.crt")}
	s.put(tb, write)
	rule := "hostssl all all 127.0.0.1/32 trust"
	if asking {
		rule += " clientcert=verify-ca"
	}
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("local all all trust\n"+rule+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.Execute(tb, "ALTER SYSTEM SET ssl = on", "ALTER SYSTEM SET ssl_cert_file = 'tls.crt'", "ALTER SYSTEM SET ssl_key_file = 'tls.key'",
		"ALTER SYSTEM SET ssl_ca_file = 'ca.crt'", "SELECT pg_reload_conf()")
	return s
}

// NewChecked starts a server of a test's own that asks for passwords at 127.0.0.1. Its owner gets in without one, by the URL.
func NewChecked(tb testing.TB) (owner, address string) {
	tb.Helper()
	server, address := listening(tb)
	rules := filepath.Join(server.DataDir(), "data", "pg_hba.conf")
	if err := os.WriteFile(rules, []byte("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	(&Secured{server: server}).Execute(tb, "SELECT pg_reload_conf()")
	return server.URL(), address
}

// listening starts a server for one test that trusts every client on an address of 127.0.0.1.
func listening(tb testing.TB) (server *postgres.Server, address string) {
	tb.Helper()
	address = porttest.FreeAddress(tb)
	dir, err := os.MkdirTemp("", "lockstep-pg-test-") //nolint:usetesting // TempDir is open to its owner only, and the server has an account of its own
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		tb.Fatal(err)
	}
	server, err = postgres.Start(tb.Context(), postgres.Config{
		DataDir: filepath.Join(dir, "server"), Fast: true,
		Temporary: true, Address: address,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return server, address
}

// Rotate gives the server other certificates. It shows them some time after the reload: to wait for them, connect until they appear.
func (s *Secured) Rotate(tb testing.TB, write func(certs.Files)) {
	tb.Helper()
	s.put(tb, write)
	s.Execute(tb, "SELECT pg_reload_conf()")
}

func (s *Secured) put(tb testing.TB, write func(certs.Files)) {
	tb.Helper()
	write(s.files)
	owner, err := os.Stat(filepath.Dir(s.files.Key))
	if err != nil {
		tb.Fatal(err)
	}
	as, ok := owner.Sys().(*syscall.Stat_t)
	if !ok {
		tb.Skip("this system's files have no owners")
	}
	for _, file := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if err := os.Chown(file, int(as.Uid), int(as.Gid)); err != nil {
			tb.Fatal(err)
		}
	}
}

// Execute runs statements over the server's socket, as its owner.
func (s *Secured) Execute(tb testing.TB, statements ...string) {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), s.server.URL())
	if err != nil {
		tb.Fatal(err)
	}
	defer pool.Close()
	for _, sql := range statements {
		if _, err := pool.Exec(tb.Context(), sql); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	}
}
