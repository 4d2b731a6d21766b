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
	"github.com/jackc/pgx/v5/pgxpool"

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

// Outbox stores artifacts as events.
type Outbox struct {
	pool   *pgxpool.Pool
	encode func(core.Artifact) (event.Sealed, error)
	wake   func()
}

var _ core.Outbox = (*Outbox)(nil)

// NewOutbox is an outbox of the events that encode makes. It calls wake after each commit.
func NewOutbox(pool *pgxpool.Pool, encode func(core.Artifact) (event.Sealed, error), wake func()) *Outbox {
	return &Outbox{pool: pool, encode: encode, wake: wake}
}

// Put stores all artifacts in one transaction.
func (o *Outbox) Put(ctx context.Context, artifacts []core.Artifact) error {
	events := make([]event.Sealed, len(artifacts))
	for i, a := range artifacts {
		e, err := o.encode(traced(ctx, a))
		if err != nil {
			return err
		}
		events[i] = e
	}
	err := pg.InTx(ctx, o.pool, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, events...) })
	if err != nil {
		return fmt.Errorf("put %d events into the outbox: %w", len(events), err)
	}
	// After the commit: whoever is woken before it finds nothing.
	o.wake()
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
