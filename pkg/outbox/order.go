package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

const (
	// commitWithin is how long an event waits for an earlier one that another replica may be applying at the moment. One that is still
	// missing then was lost on the way, and is sent again after ResendAfter.
	commitWithin = time.Second
	// lookFirst and lookLimit bound how often the table is polled for it.
	lookFirst, lookLimit = 5 * time.Millisecond, 100 * time.Millisecond
	// closedBatch is how many positions are read at once.
	closedBatch = 5000
)

// order is what this process knows of the beginning of a sequence.
type order struct {
	// upTo is the position up to which every event is closed, or no longer waited for.
	upTo int64
	// missing is the position that was last waited for, since when that began.
	missing int64
	since   time.Time
}

// Ready reports for each event whether it may be applied now, for receivers that need the order: every earlier event of its sender is
// closed, or precedes it in the list and is ready. The caller neither claims nor applies an event that is not ready: the sender, which gets
// no receipt for it, sends it again after those that are missing. So the order of a sender's events is kept whatever the stream loses,
// repeats and reorders, and however many replicas consume it.
//
// Ready waits briefly for events that another replica may be committing. A position that has not arrived within GapAtMost, because the bus
// refuses its event, is no longer waited for. Events without a valid place are ready; Claim refuses those whose place is malformed. On an
// error of the database the result is nil.
func (i *Inbox) Ready(ctx context.Context, events []event.Event) ([]bool, error) {
	places := make([]place, len(events))
	for n, e := range events {
		if p, err := placeOf(e); err == nil {
			places[n] = i.mine(p)
		}
	}
	for pause := lookFirst; ; pause = min(2*pause, lookLimit) {
		ready, waited, err := i.ready(ctx, places)
		if err != nil || waited >= commitWithin || !slices.Contains(ready, false) {
			return ready, err
		}
		if err := clock.Sleep(ctx, i.Clock, pause); err != nil {
			return nil, err
		}
	}
}

// ready is Ready without waiting; waited is the shortest time for which the missing events of a sequence have been waited for: one that has
// a gap for long has no other stop waiting.
func (i *Inbox) ready(ctx context.Context, places []place) (ready []bool, waited time.Duration, err error) {
	ready, waited = make([]bool, len(places)), commitWithin
	of := map[sequence][]int{}
	for n, p := range places {
		if ready[n] = p.position == 0; !ready[n] {
			of[p.sequence] = append(of[p.sequence], n)
		}
	}
	for seq, at := range of {
		i.mu.Lock()
		o := i.orders[seq]
		i.mu.Unlock()
		early, err := i.follow(ctx, seq, &o, places, at, ready)
		if err != nil {
			return nil, 0, err
		}
		if early {
			waited = min(waited, i.Clock.Now().Sub(o.since))
		}
		i.mu.Lock()
		i.orders[seq] = o
		i.mu.Unlock()
	}
	return ready, waited, nil
}

// follow sets ready for the events of one sequence, which are at the given indexes, and reports whether any of them is early.
func (i *Inbox) follow(ctx context.Context, seq sequence, o *order, places []place, at []int, ready []bool) (early bool, err error) {
	for _, n := range at {
		// What is below the base was confirmed, or never will be (doc.go).
		o.upTo = max(o.upTo, places[n].base-1)
	}
	var closed map[int64]bool
	for {
		next, first := o.upTo+1, int64(0)
		for _, n := range at {
			p := places[n].position
			ready[n] = p <= next || closed[p]
			if ready[n] {
				next = max(next, p+1)
			} else if first == 0 || p < first {
				first = p
			}
		}
		switch {
		case first == 0:
			return false, nil
		case closed == nil:
			if closed, err = i.closed(ctx, seq, o); err != nil {
				return false, err
			}
		default:
			now := i.Clock.Now()
			if o.missing != next {
				o.missing, o.since = next, now
			}
			if now.Sub(o.since) < i.GapAtMost {
				return true, nil
			}
			i.Log.WarnContext(ctx, "inbox no longer waits for a missing event", "sender", seq.sender, "position", next, "next", first)
			o.upTo = first - 1
		}
	}
}

// closed advances o over positions that are closed without a gap, and returns those closed above it, as far as they were read.
func (i *Inbox) closed(ctx context.Context, seq sequence, o *order) (map[int64]bool, error) {
	for {
		positions, err := query.New(i.Pool).Closed(ctx,
			query.ClosedParams{Sender: seq.sender, Epoch: seq.epoch, After: o.upTo, AtMost: closedBatch})
		if err != nil {
			return nil, pg.Classify(err, "read what has come from %s", seq.sender)
		}
		// The first is the mark, behind which there are no more than were asked for.
		o.upTo = positions[0]
		positions = positions[1:]
		closed := make(map[int64]bool, len(positions))
		for _, p := range positions {
			closed[p] = true
		}
		for closed[o.upTo+1] {
			o.upTo++
		}
		if len(positions) < closedBatch || positions[len(positions)-1] != o.upTo {
			return closed, nil
		}
	}
}
