package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// TestMain is also the child process of the tests: `<this binary> child BEHAVIOUR ADDRESS`.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		os.Exit(behave(os.Args[2], os.Args[3]))
	}
	goleak.VerifyTestMain(m, bustest.Leftovers()...)
}

func behave(behaviour, where string) int {
	switch behaviour {
	case "serve": // until it is asked to end
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("listening on", where)
		server := &http.Server{Addr: where, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		go func() { _ = server.ListenAndServe() }()
		<-ctx.Done()
		fmt.Println("ending as asked")
		return 0
	case "refuse":
		fmt.Println("token: found none, expected one")
		return ExitConfiguration
	default:
		return 1
	}
}

func newProcess(t *testing.T, behaviour string) *process {
	t.Helper()
	dir := t.TempDir()
	where := porttest.FreeAddress(t)
	p := &process{
		name: behaviour, args: []string{"child", behaviour, where}, ready: httpReady("http://" + where),
		pidFile: filepath.Join(dir, "pid"), logFile: filepath.Join(dir, "log"), environment: os.Environ(),
		clock: clock.System(), log: slog.New(slog.DiscardHandler),
	}
	if err := os.WriteFile(p.logFile, []byte("said of an earlier run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(t.Context())
	t.Cleanup(func() {
		p.end()
		http.DefaultClient.CloseIdleConnections()
	})
	return p
}

func TestAProcessThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := newProcess(t, "serve")
	if err := p.waitReady(ctx); err != nil {
		t.Fatal(err)
	}
	first, _, _ := p.status()
	written, err := os.ReadFile(p.pidFile)
	if err != nil || strings.TrimSpace(string(written)) != fmt.Sprint(first) {
		t.Errorf("pid file: got %q, %v; want %d", written, err, first)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the part is started again", func() bool { pid, starts, _ := p.status(); return starts == 2 && pid != 0 && pid != first })
	if err := p.waitReady(ctx); err != nil {
		t.Fatal(err)
	}
	p.end()
	if !strings.HasSuffix(p.tail(1), "ending as asked") {
		t.Errorf("log: got %q, want that it ended by itself", p.tail(5))
	}
	if _, err := os.Stat(p.pidFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pid file after the end: got %v, want none", err)
	}
}

func TestAConfigurationThatIsRefusedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := newProcess(t, "refuse")
	err := p.waitReady(ctx)
	if err == nil || !strings.Contains(err.Error(), "token: found none, expected one") {
		t.Errorf("got %v, want the last line of its log", err)
	}
	if strings.Contains(err.Error(), "of an earlier run") {
		t.Errorf("got %v, want nothing that an earlier run has said", err)
	}
	if _, starts, _ := p.status(); starts != 1 {
		t.Errorf("got %d starts, want 1", starts)
	}
}

func TestAFolderBelongsToOneStack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(path); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second lock: got %v, want ErrInUse with the process", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lock(path)
	if err != nil {
		t.Errorf("lock after it was given back: %v", err)
	}
	_ = again.Close()
}

func TestSettingsStayAndPortsAreOurs(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	first, held, err := openSettings(t.Context(), clock.System(), dir)
	if err != nil {
		t.Fatal(err)
	}
	foreign, heldByOther, err := openSettings(t.Context(), clock.System(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer heldByOther.Release()
	for name, ours := range first.Ports {
		for _, taken := range foreign.Ports {
			if ours == taken {
				t.Errorf("port %d of %s was chosen twice", ours, name)
			}
		}
	}
	if _, _, err := openSettings(t.Context(), clock.System(), dir); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("second opening: got %v, want a port in use", err)
	}
	held.Release()
	second, held, err := openSettings(t.Context(), clock.System(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	if second.Token != first.Token || second.Ports["git"] != first.Ports["git"] {
		t.Errorf("got %+v, want the settings of the first run %+v", second, first)
	}
}

func TestAPortThatIsInUseIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, held, err := openSettings(t.Context(), clock.System(), dir)
	if err != nil {
		t.Fatal(err)
	}
	held.Release()
	squatter, err := net.Listen("tcp", port.Address(s.Ports["git"]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = squatter.Close() }()
	_, _, err = openSettings(t.Context(), clock.System(), dir)
	if want := fmt.Sprintf("port %d, chosen for git in an earlier run, is in use", s.Ports["git"]); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestChildrenDoNotInheritOurConfiguration(t *testing.T) {
	t.Parallel()
	got := environment([]string{"PATH=/bin", "LOCKSTEP_DATABASE_URL=postgres://elsewhere", "HOME=/root"})
	if strings.Join(got, " ") != "PATH=/bin HOME=/root" {
		t.Errorf("got %q", got)
	}
}

func TestSettingsGoToTheirPart(t *testing.T) {
	t.Parallel()
	c := Config{Set: []string{"domain.oidc.issuer=https://id.example.com", "relay.log_level=debug", "domain.label=a=b"}}
	if got := strings.Join(c.setOf("domain"), " "); got != "--set oidc.issuer=https://id.example.com --set label=a=b" {
		t.Errorf("found %q", got)
	}
	if got := c.setOf("registry"); len(got) != 0 || c.checkSet() != nil {
		t.Errorf("found %q, %v", got, c.checkSet())
	}
	for _, wrong := range []string{"", "domain", "domain.label", "domain.=x", "kitchen.sink=x"} {
		if _, err := Start(t.Context(), Config{Dir: t.TempDir(), Set: []string{wrong}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: found %v; want it refused", wrong, err)
		}
	}
}
