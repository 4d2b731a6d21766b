package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// Hinter is what an Inbox needs of the bus.
type Hinter interface {
	// Hint sends a message that may get lost.
	Hint(subject string, payload []byte)
}

// InboxDeps is what an Inbox needs.
type InboxDeps struct {
	// Pool is in the service's schema.
	Pool  *pgxpool.Pool
	Bus   Hinter
	Clock clock.Clock
	Log   *slog.Logger
	// Name is the service, as its senders list it among their receivers: "domain".
	Name string
	// Retention is how long an event is remembered after it was applied. It must be longer than any stream keeps its
	// messages. 0: thirty days.
	Retention time.Duration
	// GapAtMost is how long Ready has events wait for a missing one: several times as long as it takes until that is sent
	// again. 0: three minutes.
	GapAtMost time.Duration
}

// Inbox applies each event once and confirms it to its sender. doc.go describes how.
type Inbox struct {
	InboxDeps
	poke chan struct{}

	mu     sync.Mutex
	seen   map[sequence]*progress
	orders map[sequence]order
}

// progress is what this process knows of a sequence that is on its way.
type progress struct {
	highest int64 // the highest position claimed here
	sent    int64 // the last mark that was sent
	begun   bool  // its mark is stored
	answer  bool  // something has come since: the sender wants to hear the mark, even if it is the old one
}

// NewInbox is an inbox whose claims can be used at once; Run sends the receipts.
func NewInbox(d InboxDeps) *Inbox {
	if d.Retention <= 0 {
		d.Retention = 30 * 24 * time.Hour
	}
	if d.GapAtMost <= 0 {
		d.GapAtMost = 3 * time.Minute
	}
	return &Inbox{InboxDeps: d, poke: make(chan struct{}, 1), seen: map[sequence]*progress{}, orders: map[sequence]order{}}
}

// Claim says whether e comes for the first time, and records it, in the transaction that applies it (D16). On false
// the caller does nothing and commits, so that its receipt is sent again. A concurrent claim of the same event waits until
// tx has ended. An event that came from no outbox can be claimed as well. The error is Invalid if e's place is malformed.
func (i *Inbox) Claim(ctx context.Context, tx pgx.Tx, e event.Event) (first bool, err error) {
	p, err := placeOf(e)
	if err != nil {
		return false, err
	}
	return i.record(ctx, query.New(tx), e, p, nil)
}

// ClaimAll is Claim for several events in one round trip, as if each came after the one before it: of an event that is in
// the list twice, the second is not the first time. On an error nothing is known of any.
func (i *Inbox) ClaimAll(ctx context.Context, tx pgx.Tx, events []event.Event) ([]bool, error) {
	places, claims := make([]place, len(events)), make([]query.ClaimEachParams, len(events))
	for n, e := range events {
		p, err := placeOf(e)
		if err != nil {
			return nil, err
		}
		places[n], claims[n] = i.mine(p), query.ClaimEachParams(i.claim(e, i.mine(p), nil))
	}
	firsts := make([]bool, len(events))
	var failed error
	query.New(tx).ClaimEach(ctx, claims).QueryRow(func(n int, claims int32, err error) {
		if err != nil && failed == nil {
			failed = pg.Classify(err, "claim event %q of %s", events[n].ID(), events[n].Source())
		}
		firsts[n] = claims == 1
	})
	if failed != nil {
		return nil, failed
	}
	for _, p := range places {
		if p.position > 0 {
			i.remember(p)
		}
	}
	return firsts, nil
}

// Applied reports which of some events have been claimed before, in this or another transaction, or come a second time in the list. It
// claims none, and what was rejected was not applied.
func (i *Inbox) Applied(ctx context.Context, tx pgx.Tx, events []event.Event) ([]bool, error) {
	sources, ids := make([]string, len(events)), make([]string, len(events))
	for n, e := range events {
		sources[n], ids[n] = e.Source(), e.ID()
	}
	rows, err := query.New(tx).Applied(ctx, query.AppliedParams{Sources: sources, EventIds: ids})
	if err != nil {
		return nil, pg.Classify(err, "look up %d events", len(events))
	}
	known := make(map[query.AppliedRow]bool, len(rows))
	for _, r := range rows {
		known[r] = true
	}
	applied := make([]bool, len(events))
	for n := range events {
		key := query.AppliedRow{Source: sources[n], EventID: ids[n]}
		applied[n], known[key] = known[key], true
	}
	return applied, nil
}

// Received reports which of some events of a source have come here, whether they were applied or rejected. It claims none.
func (i *Inbox) Received(ctx context.Context, source string, ids []string) (map[string]bool, error) {
	rows, err := query.New(i.Pool).Received(ctx, query.ReceivedParams{Source: source, EventIds: ids})
	if err != nil {
		return nil, pg.Classify(err, "look up %d events of %s", len(ids), source)
	}
	received := make(map[string]bool, len(rows))
	for _, id := range rows {
		received[id] = true
	}
	return received, nil
}

// Reject records, in a transaction of its own, that e can never be applied, and why, so that the sender does not send it
// for ever and the mark can pass it. It is for errors that trying again cannot mend; an event that was claimed before stays
// as it is.
func (i *Inbox) Reject(ctx context.Context, e event.Event, reason string) error {
	p, err := placeOf(e)
	if err != nil {
		p = place{} // nothing can confirm it
	}
	_, err = i.record(ctx, query.New(i.Pool), e, p, &reason)
	return err
}

func (i *Inbox) record(ctx context.Context, q *query.Queries, e event.Event, p place, rejected *string) (bool, error) {
	p = i.mine(p)
	claims, err := q.Claim(ctx, i.claim(e, p, rejected))
	if err != nil {
		return false, pg.Classify(err, "claim event %q of %s", e.ID(), e.Source())
	}
	if p.position > 0 {
		i.remember(p)
	}
	return claims == 1, nil
}

// mine is the place of an event whose sender waits for a receipt; none for our own events, for which no receipt is expected.
func (i *Inbox) mine(p place) place {
	if p.sender == i.Name {
		return place{}
	}
	return p
}

func (i *Inbox) claim(e event.Event, p place, rejected *string) query.ClaimParams {
	params := query.ClaimParams{Source: e.Source(), EventID: e.ID(), ClaimedAt: i.Clock.Now(), RejectedReason: rejected}
	if p.position > 0 {
		params.Sender, params.Epoch, params.Position, params.Base = &p.sender, &p.epoch, &p.position, &p.base
	}
	return params
}

// remember has Run look at the sequence soon. The transaction of the claim may still be under way then, or come to
// nothing: Run looks again as long as the mark has not reached the position.
func (i *Inbox) remember(p place) {
	i.mu.Lock()
	s := i.seen[p.sequence]
	if s == nil {
		s = &progress{}
		i.seen[p.sequence] = s
	}
	s.highest = max(s.highest, p.position)
	s.answer = true
	i.mu.Unlock()
	select {
	case i.poke <- struct{}{}:
	default:
	}
}
