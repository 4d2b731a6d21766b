//go:build unix

// Package pgbouncer runs a real PgBouncer in front of a test's database, for the tests of what a pooler changes.
package pgbouncer

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// Program is where PgBouncer is: LOCKSTEP_PGBOUNCER, or among the programs of the machine. A test that needs it is skipped where it is
// missing, unless LOCKSTEP_NIGHTLY is set; `make faults` has it installed.
func Program(tb testing.TB) string {
	tb.Helper()
	if program := os.Getenv("LOCKSTEP_PGBOUNCER"); program != "" {
		return program
	}
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	if os.Getenv("LOCKSTEP_NIGHTLY") != "" {
		tb.Fatal("found no PgBouncer; install the package pgbouncer, or set LOCKSTEP_PGBOUNCER")
	}
	tb.Skip("found no PgBouncer; install the package pgbouncer, or set LOCKSTEP_PGBOUNCER")
	return ""
}

// Address is free for a PgBouncer that the test starts later.
func Address(tb testing.TB) string {
	tb.Helper()
	return porttest.FreeAddress(tb)
}

// Start runs PgBouncer at an address with the lines of its section [databases], for the account of the server's URL, and as few connections
// to the server as given, until the test ends.
func Start(tb testing.TB, address, server, databases string, connections int) {
	tb.Helper()
	program := Program(tb)
	account, err := pgx.ParseConfig(server)
	if err != nil {
		tb.Fatal(err)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgbouncer-") //nolint:usetesting // its account has to get in, and only we get into TempDir
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	users := filepath.Join(dir, "users.txt")
	settings := fmt.Sprintf(`[databases]
%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = 200
`, databases, host, port, users, connections)
	for name, content := range map[string]string{
		users: fmt.Sprintf("%q %q\n", account.User, account.Password), filepath.Join(dir, "pgbouncer.ini"): settings,
	} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil { //nolint:gosec // PgBouncer may have an account of its own
			tb.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as above
		tb.Fatal(err)
	}
	var output strings.Builder
	cmd := exec.CommandContext(tb.Context(), program, filepath.Join(dir, "pgbouncer.ini")) //nolint:gosec // the test's own
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &output, &output, asAnother(tb)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if tb.Failed() {
			tb.Log(output.String())
		}
	})
	wait.For(tb, "PgBouncer listens", func() bool {
		conn, err := net.Dial("tcp", address) //nolint:noctx // on this machine
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// asAnother has PgBouncer run as another account than root, which it refuses: as that of the test's server, whose socket only this enters.
func asAnother(tb testing.TB) *syscall.SysProcAttr {
	tb.Helper()
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return attributes
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		tb.Fatal(err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		tb.Fatal(err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		tb.Fatal(err)
	}
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes
}
