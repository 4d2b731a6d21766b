package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/testkit/postgres"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// childVariable makes the test binary a process that starts a server and waits to be killed.
const childVariable = "LOCKSTEP_LOCAL_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		child(dir)
		return
	}
	m.Run()
}

func child(dir string) {
	s, err := postgres.Start(context.Background(), postgres.Config{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "error", err)
		return
	}
	_, _ = fmt.Fprintln(os.Stdout, "pid", s.PID())
	<-s.Done()
}

// folder is a data folder that any account can reach: t.TempDir is open to its owner only.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lockstep-local-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "pg")
}

func start(t *testing.T, c postgres.Config) *postgres.Server {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	s, err := postgres.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var got T
	if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDataSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	first := start(t, postgres.Config{DataDir: dir, Fast: true})
	query[int](t, first.URL(), `WITH made AS (SELECT lo_create(7)) SELECT count(*) FROM made`)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, postgres.Config{DataDir: dir, Fast: true})
	if got := query[int](t, second.URL(), `SELECT oid::int FROM pg_largeobject_metadata`); got != 7 {
		t.Errorf("found %d, want 7", got)
	}
	if first.URL() != second.URL() {
		t.Errorf("the address changed from %s to %s", first.URL(), second.URL())
	}
}

func TestTwoServersDoNotCollide(t *testing.T) {
	t.Parallel()
	a := start(t, postgres.Config{DataDir: folder(t), Fast: true})
	b := start(t, postgres.Config{DataDir: folder(t), Fast: true})
	if query[string](t, a.URL(), `SHOW data_directory`) == query[string](t, b.URL(), `SHOW data_directory`) {
		t.Error("both servers have the same data")
	}
	if got := query[string](t, a.URL(), `SHOW listen_addresses`); got != "" {
		t.Errorf("listens on %q, want no address", got)
	}
}

func TestAFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Config{DataDir: folder(t), Fast: true})
	_, err := postgres.Start(t.Context(), postgres.Config{DataDir: s.DataDir()})
	if err == nil || !strings.Contains(err.Error(), "another process uses the folder") {
		t.Errorf("second start answered %v", err)
	}
}

func TestAKilledParentLeavesNothingAndTheFolderCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var pid int
	if _, scanErr := fmt.Sscanf(line, "pid %d", &pid); scanErr != nil {
		t.Fatalf("the child says %q (%v)", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s := start(t, postgres.Config{DataDir: dir, Fast: true}) // ends the orphan if it is still there
	if s.PID() == pid {
		t.Error("the new server has the old one's process")
	}
	awaitGone(t, pid)
}

func TestAPidFileThatNamesAStrangerIsIgnored(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := start(t, postgres.Config{DataDir: dir, Fast: true}).Stop(); err != nil {
		t.Fatal(err)
	}
	stale := fmt.Sprintf("%d\n%s/data\n0\n5432\n\n\n", os.Getppid(), dir)
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, postgres.Config{DataDir: dir, Fast: true})
}

func TestATemporaryServerRemovesItsFolder(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	template := filepath.Join(filepath.Dir(dir), "template")
	s := start(t, postgres.Config{DataDir: dir, Fast: true, Temporary: true, Template: template})
	other := start(t, postgres.Config{DataDir: dir + "2", Fast: true, Temporary: true, Template: template})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is still there")
	}
	if got := query[int](t, other.URL(), `SELECT 1`); got != 1 {
		t.Error("the other server stopped too")
	}
}

func TestALongPathStillHasASocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), strings.Repeat("long/", 30))
	start(t, postgres.Config{DataDir: dir, Fast: true})
}

func TestAnUnreachableFolderIsReplacedForRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	s := start(t, postgres.Config{DataDir: filepath.Join(closed, "pg"), Fast: true})
	t.Cleanup(func() { _ = os.RemoveAll(s.DataDir()) })
	if strings.HasPrefix(s.DataDir(), closed) {
		t.Errorf("uses %s, which the server's account cannot reach", s.DataDir())
	}
}

func TestDataOfAVersionThatIsNotInstalledIsRefusedByName(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is installed meanwhile
	_, err := postgres.Start(ctx, postgres.Config{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "install the package postgresql-9") {
		t.Errorf("start answered %v", err)
	}
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("process %d has ended", pid), func() bool { return syscall.Kill(pid, 0) != nil })
}
