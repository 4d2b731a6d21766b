// Package store holds the registry service's tables: the outbox, in which accepted events wait until the domain confirms them, and the
// reports of hooks. A delivery is answered after its events are committed here, so no event is lost even if every stream is (D44).
//
// It does not publish; the outbox's sender does.
package store

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Migrations are the migrations of the tables, and MigrationName is the name that their version is stored under.
func Migrations() fs.FS { return outbox.Migrations() }

// MigrationName names the set of migrations.
const MigrationName = "outbox"

// Outbox stores the reports that come with a token of ours.
type Outbox struct{ hooks *Hooks }

var _ core.Outbox = (*Outbox)(nil)

// NewOutbox returns an Outbox that shares the tables of hooks.
func NewOutbox(hooks *Hooks) *Outbox { return &Outbox{hooks: hooks} }

// Put stores everything in one transaction. It sorts hints in place.
func (o *Outbox) Put(ctx context.Context, sender string, artifacts []core.Artifact, hints []core.Hint, refusals []core.Refusal) error {
	events := make([]event.Sealed, len(artifacts))
	for i, a := range artifacts {
		e, err := o.hooks.encode(traced(ctx, a))
		if err != nil {
			return err
		}
		events[i] = e
	}
	err := pg.InTx(ctx, o.hooks.pool, func(tx pgx.Tx) error {
		if err := outbox.Add(ctx, tx, events...); err != nil {
			return fmt.Errorf("add %d events: %w", len(events), err)
		}
		if err := o.hooks.hint(ctx, tx, sender, hints); err != nil {
			return err
		}
		return o.hooks.refuse(ctx, tx, sender, refusals)
	})
	if err != nil {
		return fmt.Errorf("put %d events into the outbox: %w", len(events), err)
	}
	// After the commit: a sender that is woken earlier finds nothing.
	if len(events) > 0 {
		o.hooks.wake()
	}
	if len(hints) > 0 {
		o.hooks.wakeHint()
	}
	return nil
}

// traced returns an artifact with the trace that it continues in: the one of the report, if it has one, or else that of the delivery or,
// for a poll, a new one.
func traced(ctx context.Context, a core.Artifact) core.Artifact {
	if a.TraceParent != "" {
		ctx = telemetry.LinkSpan(ctx, a.TraceParent, artifactSpan)
	} else {
		var end func(string)
		ctx, end = telemetry.StartSpan(ctx, artifactSpan, telemetry.Internal)
		end("")
	}
	if recorded := telemetry.RecordedTrace(ctx); recorded != "" {
		a.TraceParent = recorded
	}
	return a
}

// artifactSpan is the first span of every trace of a delivery.
const artifactSpan = "artifact published"
