package outbox

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

//go:generate sqlc generate -f sqlc.yaml

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations are the tables of outbox and inbox. Every service applies them in its own schema:
// pg.Migrate(ctx, config, "outbox", outbox.Migrations()).
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the embedded folder's name is a constant
	}
	return sub
}

// maxEvent bounds the JSON of an event: NATS takes messages of 1 MiB by default, and the sender adds to it.
const maxEvent = 1<<20 - 16<<10

// Add stores events in the caller's transaction, to be published once it has committed and a Sender finds them (see
// Sender.Wake). An event that is in the outbox already, by source and id, is not stored again, so a step that is repeated
// may add its event again. An event that could never be published is refused, by event.Seal or here: the error is Invalid and names
// the field.
func Add(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error {
	p, err := rows(events)
	if err != nil || len(p.EventIds) == 0 {
		return err
	}
	return pg.Classify(query.New(tx).Add(ctx, p), "add %d events to the outbox", len(events))
}

// AddNumbered is Add for a service whose transactions come one after the other anyhow, because each carries what many callers have: it
// gives the events their positions at once, so that the sender needs no transaction of its own for that, and no write to the
// disk. (Behind events without one, such as Add left, they get none: the order stays. While another transaction gives positions, they get
// none either, and wait for nobody.) From here to the end of tx no other can give positions: tx no longer does anything that takes long. An
// event that another transaction adds at the same moment is an error; done again, tx finds it there.
func AddNumbered(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error {
	p, err := rows(events)
	if err != nil || len(p.EventIds) == 0 {
		return err
	}
	return pg.Classify(query.New(tx).AddNumbered(ctx, query.AddNumberedParams(p)), "add %d events to the outbox", len(events))
}

// AddNew is AddNumbered for events that no transaction has added before, which spares the database to look for them: an event that is
// stored already is an error, of the constraint outbox_event_once.
// Where a few events before it have no position, because two transactions were adding at once, it gives them theirs as well.
func AddNew(ctx context.Context, tx pgx.Tx, events ...event.Sealed) error {
	p, err := rows(events)
	if err != nil || len(p.EventIds) == 0 {
		return err
	}
	n := query.AddNewParams{Sources: p.Sources, EventIds: p.EventIds, Events: p.Events, Lanes: p.Lanes, Ranks: make([]int64, len(p.EventIds))}
	var counts [Lanes]int64
	for i, receipted := range p.Receipted {
		if receipted {
			counts[p.Lanes[i]]++
			n.Ranks[i] = counts[p.Lanes[i]]
		}
	}
	for lane, count := range counts {
		if count > 0 {
			n.Wanted, n.Counts = append(n.Wanted, int16(lane)), append(n.Counts, count)
		}
	}
	return pg.Classify(query.New(tx).AddNew(ctx, n), "add %d new events to the outbox", len(events))
}

// rows are the rows of events; of two that are the same, one.
func rows(events []event.Sealed) (query.AddParams, error) {
	type name struct{ source, id string }
	known := make(map[name]bool, len(events))
	var p query.AddParams
	for _, e := range events {
		if err := fits(e); err != nil {
			return p, fmt.Errorf("add event %q to the outbox: %w", e.ID(), err)
		}
		n := name{e.Source(), e.ID()}
		if known[n] {
			continue
		}
		known[n] = true
		p.Sources = append(p.Sources, e.Source())
		p.EventIds = append(p.EventIds, e.ID())
		p.Events = append(p.Events, string(e.JSON()))
		p.Receipted = append(p.Receipted, e.Path() != event.PathCluster)
		p.Lanes = append(p.Lanes, laneOf(e))
	}
	return p, nil
}

// fits checks what sealing leaves to be checked: that there is an event, and that the bus takes it.
func fits(e event.Sealed) error {
	if e.IsZero() {
		return fault.InvalidFields(fault.Field{Name: "event", Problem: "found none; expected a sealed one"})
	}
	if n := len(e.JSON()); n > maxEvent {
		return fault.InvalidFields(fault.Field{Name: "data", Problem: fmt.Sprintf("the event has %d bytes; expected at most %d", n, maxEvent)})
	}
	return nil
}
