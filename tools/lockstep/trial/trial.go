package trial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// Config is what cases are played with.
type Config struct {
	// Files are the texts of the driver, by their paths in its folder.
	Files map[string][]byte
	Clock clock.Clock
	// Log receives what happens to the processes.
	Log *slog.Logger
	// Played is called with each outcome.
	Played func(Outcome)
}

// Run starts a stack in a temporary folder, plays all cases in it, one after the other, and leaves nothing running. The error is none of a
// case.
func Run(ctx context.Context, c Config, cases []Case) (err error) {
	bundles, err := driver.FromFiles(c.Files)
	if err != nil {
		return err
	}
	dir, remove, err := stack.TemporaryFolder("lockstep-driver-test-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	set, err := settings(dir, c.Files, bundles)
	if err != nil {
		return err
	}
	s, err := stack.Start(ctx, stack.Config{Dir: filepath.Join(dir, "stack"), Set: set, Fast: true, Temporary: true, Log: c.Log, Clock: c.Clock})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, s.Stop(), s.Discard(context.WithoutCancel(ctx))) }()
	for i, one := range cases {
		if one.Driver == "" {
			one.Driver = bundles[len(bundles)-1].Ref() // its newest major
		}
		outcome, err := play(ctx, s, c.Clock, one, fmt.Sprintf("case-%d", i+1))
		if err != nil {
			return err
		}
		c.Played(outcome)
	}
	return nil
}

// settings are those of a stack that has the driver, and a relay that allows it everything that it may do to objects. The stack has a
// driver that is built in already.
func settings(dir string, files map[string][]byte, bundles []*driver.Bundle) ([]string, error) {
	set := []string{"relay.allow_apply=*", "relay.allow_patch=*", "relay.allow_delete=*", "relay.allow_logs=true"}
	builtIn, err := driver.Embedded()
	if err != nil {
		return nil, fmt.Errorf("load built-in drivers: %w", err)
	}
	missing := 0
	for _, b := range bundles {
		known, err := builtIn.Get(b.Ref())
		if err != nil {
			missing++
		} else if known.Digest() != b.Digest() {
			return nil, fault.New(fault.Conflict, "folder: found %s, which is built in with another text; give the driver a name of its own", b.Ref())
		}
	}
	if missing == 0 {
		return set, nil
	}
	folder := filepath.Join(dir, "drivers")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(folder, "driver", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("copy the driver: %w", err)
		}
		if err := os.WriteFile(path, files[name], 0o600); err != nil {
			return nil, fmt.Errorf("copy the driver: %w", err)
		}
	}
	return append(set, "domain.driver_dir="+folder, "workflow.driver_dir="+folder), nil
}
