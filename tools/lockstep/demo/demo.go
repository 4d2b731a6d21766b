package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// Config says where the demo runs and where its output goes.
type Config struct {
	// Dir keeps everything and stays; it has to be new or empty. Without it a temporary folder is used, and removed.
	Dir string
	// Out receives the demo's text.
	Out io.Writer
	// Colour is set if Out is a terminal that shows colours.
	Colour bool
	// Clock is the system's, but in tests.
	Clock clock.Clock
	// Log receives what happens to the processes.
	Log *slog.Logger
}

// Run plays the whole demo. It returns nil only if every step was observed; nothing is left running either way.
func Run(ctx context.Context, c Config) (err error) {
	out := &account{out: c.Out, colour: c.Colour, clock: c.Clock, began: c.Clock.Now()}
	dir, remove, err := folder(c.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()

	out.print(out.styled(bold, "Lockstep: several services, one version set, gate by gate"))
	out.note("starting PostgreSQL, NATS, an OCI registry, a Git server, the four services and a simulated cluster in %s", dir)
	s, err := stack.Start(ctx, stack.Config{Dir: dir, Log: c.Log, Clock: c.Clock, Fast: c.Dir == ""})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			out.print("\nThe last complaints of each part:")
			out.print(tails(s))
		}
		err = errors.Join(err, s.Stop())
		if c.Dir == "" {
			err = errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
		}
		if err == nil {
			out.print("\n" + out.styled(bold, fmt.Sprintf("Every step was observed. Nothing is left running. %.0f seconds.",
				c.Clock.Now().Sub(out.began).Seconds())))
		}
	}()
	out.observed("everything is up; the cluster is simulated, the rest is what runs in production")
	return newStory(NewWorld(s, Story().WithSmokeTest(), c.Clock), out).run(ctx)
}

// run plays the acts, and then prints the journals.
func (y *story) run(ctx context.Context) error {
	for _, act := range []func(context.Context) error{y.prologue, y.first, y.canary, y.bad, y.rollback} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	y.out.act("The journals: who did what to which part, when and why")
	for i, r := range y.rollouts {
		var table bytes.Buffer
		if err := journal.Table(&table, r); err != nil {
			return err
		}
		y.out.print(fmt.Sprintf("\n%s of %s to %s: %s (act %d)\n%s", r.ID, r.Application.Name, r.VersionSet.Name, journal.Human(r.State), i+1,
			strings.TrimRight(table.String(), "\n")))
	}
	return nil
}

// folder is where the demo happens, and how to tidy up.
func folder(dir string) (string, func() error, error) {
	if dir == "" {
		return stack.TemporaryFolder("lockstep-demo-")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("data folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("data folder: %w", err)
	}
	if len(entries) > 0 {
		return "", nil, fault.New(fault.Invalid, "data: found %q with %d entries, expected a folder that is new or empty", dir, len(entries))
	}
	return dir, func() error { return nil }, nil
}

// tails are the last complaints of each part, or its last line where it has none.
func tails(s *stack.Stack) string {
	const lines = 8
	var text []string
	for _, part := range stack.Parts() {
		text = append(text, s.LogTail(part, lines, func(line string) bool {
			return !strings.Contains(line, `"level":"INFO"`) && !strings.Contains(line, `"level":"DEBUG"`)
		}))
	}
	return strings.Join(text, "\n")
}
