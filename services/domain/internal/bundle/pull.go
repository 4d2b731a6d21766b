package bundle

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// askWithin is how long a registry has for one artifact, which is small.
	askWithin = time.Minute
	// askAgain is how soon a registry is asked again that did not answer, and how soon it is seen what another replica has pulled.
	askAgain = 15 * time.Second
)

// Run keeps up with the registries, and with the other replicas, until ctx ends. A registry that is slow holds up nobody else's drivers.
func (in *Drivers) Run(ctx context.Context) {
	if len(in.deps.Artifacts) == 0 {
		<-ctx.Done()
		return
	}
	var wg sync.WaitGroup
	for _, r := range in.deps.Artifacts {
		wg.Go(func() {
			for in.wait(ctx, in.attend(ctx, r)) {
			}
		})
	}
	for in.wait(ctx, askAgain) {
		if err := in.Load(ctx); err != nil && ctx.Err() == nil {
			in.deps.Log.WarnContext(ctx, "the drivers that are kept cannot be read", telemetry.KeyError, err)
		}
	}
	wg.Wait()
}

// attend asks about one reference, and answers how long to wait with the next question.
func (in *Drivers) attend(ctx context.Context, r artifact.Reference) time.Duration {
	err := in.Ask(ctx, r)
	switch {
	case err != nil:
		return askAgain
	case r.Fixed(): // it is kept, and cannot change
		return untilRestart
	default:
		return in.deps.Refresh
	}
}

// untilRestart is longer than any process runs.
const untilRestart = 100 * 365 * 24 * time.Hour

// Ask asks a registry what a reference names, pulls that unless it is kept already, keeps it, and loads it. Until it is kept nothing
// has changed: a process that is killed before that asks again. The error is recorded as the problem of the origin, too.
func (in *Drivers) Ask(ctx context.Context, r artifact.Reference) error {
	a, err := in.pull(ctx, r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if in.changed(r.String(), troubleOf(err)) {
		in.logChange(ctx, r, a, err)
	}
	if loadErr := in.Load(ctx); loadErr != nil && err == nil {
		err = loadErr
	}
	return err
}

// pull makes sure that what a reference names is kept.
func (in *Drivers) pull(ctx context.Context, r artifact.Reference) (core.DriverArtifact, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	a := core.DriverArtifact{Reference: r.String()}
	var err error
	// Before the question: an answer that took long must not win over that to a later one.
	if a.AskedAt, err = in.deps.Kept.Now(ctx); err != nil {
		return a, err
	}
	if a.Digest, err = in.deps.Registry.Resolve(ctx, r); err != nil {
		return a, err
	}
	kept, err := in.deps.Kept.HasDriverArtifact(ctx, a.Digest)
	if err != nil {
		return a, err
	}
	if !kept {
		pulled, err := in.deps.Registry.Pull(ctx, r, a.Digest)
		if err != nil {
			return a, err
		}
		a.Content = pulled.Content
		for _, b := range pulled.Bundles {
			a.Drivers = append(a.Drivers, b.Ref())
		}
	}
	if err := in.deps.Kept.KeepDriverArtifact(ctx, a); err != nil {
		return a, fmt.Errorf("keep %s: %w", r, err)
	}
	return a, nil
}

// logChange logs an answer that differs from the last one.
func (in *Drivers) logChange(ctx context.Context, r artifact.Reference, a core.DriverArtifact, err error) {
	attrs := []slog.Attr{slog.String("reference", r.String()), slog.String("digest", a.Digest)}
	if err != nil {
		in.deps.Log.LogAttrs(ctx, fault.Describe(fault.ClassOf(err)).Level, "driver artifact not loaded",
			append(attrs, slog.Any(telemetry.KeyError, err))...)
		return
	}
	in.deps.Log.LogAttrs(ctx, slog.LevelInfo, "driver artifact is well again", attrs...)
}

// wait answers false when ctx ends first.
func (in *Drivers) wait(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(ctx, in.deps.Clock, d) == nil
}
