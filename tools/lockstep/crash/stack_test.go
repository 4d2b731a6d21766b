package crash

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// A stack continues where an earlier one on its folder has stopped, belongs to one process, and leaves nothing running.
func TestAStackContinuesInItsFolder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	config := stack.Config{Dir: t.TempDir(), DatabaseURL: pgtest.URL(t), Fast: true}
	first, err := stack.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	before := demo.NewWorld(first, oneStage(), clock.System())
	if err := before.Create(ctx); err != nil {
		t.Fatal(err)
	}
	set, err := before.Push(ctx, "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stack.Start(ctx, config); !fault.Is(err, fault.Refused) || !errors.Is(err, stack.ErrInUse) {
		t.Errorf("a second stack on the folder: got %v, want Refused, in use", err)
	}
	pids := processes(t, config.Dir)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	for part, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s (process %d) after the stop: got %v, want no such process", part, pid, err)
		}
	}

	second, err := stack.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(second.Stop(), second.Discard(context.WithoutCancel(ctx))); err != nil {
			t.Error(err)
		}
	})
	if first.Endpoints() != second.Endpoints() {
		t.Errorf("endpoints: got %+v, want those of the first run %+v", second.Endpoints(), first.Endpoints())
	}
	after := &world{World: demo.NewWorld(second, oneStage(), clock.System()), stack: second}
	after.watcher = demo.NewWatcher(after.World, nil)
	after.roll(ctx, t, set, nil)
}

// processes are the PIDs that a stack has written.
func processes(t *testing.T, dir string) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for _, part := range stack.Parts() {
		text, err := os.ReadFile(filepath.Join(dir, "run", part+".pid"))
		if err != nil {
			t.Fatal(err)
		}
		if pids[part], err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			t.Fatal(err)
		}
	}
	return pids
}

// The demo runs to its end, on a PostgreSQL server of its own.
func TestTheDemo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	var output bytes.Buffer
	err := demo.Run(ctx, demo.Config{Out: &output, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	for _, want := range []string{
		"staging     api is at gate 50 %", "api is degraded at", `approval of "release" is asked for`,
		"rollout_4 of shop to set-3: completed", "staging/web     pass gate", "Every step was observed.",
	} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("the story lacks %q:\n%s", want, output.String())
		}
	}
}

// A demo that is interrupted ends at once, and tidies up.
func TestAnInterruptedDemo(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithTimeout(t.Context(), limit)
	t.Cleanup(interrupt)
	dir := filepath.Join(t.TempDir(), "demo")
	// Else the account that runs PostgreSQL in place of root could not reach it, and the data would be put elsewhere, to stay.
	if err := os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o711); err != nil {
		t.Fatal(err)
	}
	output, input := io.Pipe()
	go func() {
		// As soon as the first rollout is on its way.
		var text []byte
		chunk := make([]byte, 4096)
		for {
			n, err := output.Read(chunk)
			if text = append(text, chunk[:n]...); bytes.Contains(text, []byte("rollout_1 of")) {
				interrupt()
			}
			if err != nil {
				return
			}
		}
	}()
	err := demo.Run(ctx, demo.Config{Dir: dir, Out: input, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)})
	_ = input.Close()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "run", "*.pid"))
	if err != nil || len(left) > 0 {
		t.Errorf("processes after the end: got %v, %v; want none", left, err)
	}
	// What an interrupted demo leaves with --data is not started upon by another.
	again := demo.Run(t.Context(), demo.Config{Dir: dir, Out: io.Discard, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)})
	if !fault.Is(again, fault.Invalid) || !strings.Contains(again.Error(), "new or empty") {
		t.Errorf("a demo in a folder with something in it: got %v, want Invalid", again)
	}
}
