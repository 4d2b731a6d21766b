// Package store keeps the registry service's tables: the outbox, in which accepted events wait until the domain
// confirms them, and what hooks have told. A delivery is answered after its events are committed here, so losing every
// stream loses none (D44).
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

// Migrations are the tables, and MigrationName is what their version is kept under.
func Migrations() fs.FS { return outbox.Migrations() }

// MigrationName names the set of migrations.
const MigrationName = "outbox"

// Outbox stores what is reported with a token of ours.
type Outbox struct{ hooks *Hooks }

var _ core.Outbox = (*Outbox)(nil)

// NewOutbox is an outbox beside what hooks tell, whose events it shares.
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
	// After the commit: a sender that is woken before it finds nothing.
	if len(events) > 0 {
		o.hooks.wake()
	}
	if len(hints) > 0 {
		o.hooks.wakeHint()
	}
	return nil
}

// traced is an artifact with the trace in which all that becomes of it goes on: that of whoever told it, if they named
// one, or else that of the delivery, or, where a poll found it, a new one.
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

// artifactSpan is what every trace of a delivery begins with.
const artifactSpan = "artifact published"
