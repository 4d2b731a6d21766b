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
	// commitWithin is how long an event waits for one before it that another replica may just be applying. What is still
	// missing then was lost on the way, and comes after ResendAfter.
	commitWithin = time.Second
	// lookFirst and lookLimit bound how often it is looked for.
	lookFirst, lookLimit = 5 * time.Millisecond, 100 * time.Millisecond
	// closedBatch is how many positions are read at once.
	closedBatch = 5000
)

// order is what this process knows of the beginning of a sequence.
type order struct {
	// upTo is the position up to which everything is closed, or not waited for any more.
	upTo int64
	// missing is the position that was waited for at last, and since is when that began.
	missing int64
	since   time.Time
}

// InTurn says of each event whether it may be applied now, for receivers to whom the order matters: everything that its sender sent
// before it is closed, or stands before it in the list and is in turn. An event that is not in turn is left alone, without a claim: the
// sender has no receipt for it and sends it again, after what is missing. So the order of a sender's events is kept whatever the
// stream loses, repeats and reorders, and however many replicas consume it.
//
// It waits for a moment for what another replica may just be committing. A position that has not come within GapAtMost, because the
// bus refuses its event, is not waited for any more. Events without a place are in turn. An error of the database says nothing
// of any event; one without a valid place is in turn, for Claim to refuse it.
func (i *Inbox) InTurn(ctx context.Context, events []event.Event) ([]bool, error) {
	places := make([]place, len(events))
	for n, e := range events {
		if p, err := placeOf(e); err == nil {
			places[n] = i.mine(p)
		}
	}
	for pause := lookFirst; ; pause = min(2*pause, lookLimit) {
		turns, waited, err := i.turns(ctx, places)
		if err != nil || waited >= commitWithin || !slices.Contains(turns, false) {
			return turns, err
		}
		if err := clock.Sleep(ctx, i.Clock, pause); err != nil {
			return nil, err
		}
	}
}

// turns is InTurn at this moment; waited is how long the least patient of the events that are not in turn has been waited for.
func (i *Inbox) turns(ctx context.Context, places []place) (turns []bool, waited time.Duration, err error) {
	turns = make([]bool, len(places))
	of := map[sequence][]int{}
	for n, p := range places {
		if turns[n] = p.position == 0; !turns[n] {
			of[p.sequence] = append(of[p.sequence], n)
		}
	}
	for seq, at := range of {
		i.mu.Lock()
		o := i.orders[seq]
		i.mu.Unlock()
		early, err := i.follow(ctx, seq, &o, places, at, turns)
		if err != nil {
			return nil, 0, err
		}
		if early {
			waited = max(waited, i.Clock.Now().Sub(o.since))
		}
		i.mu.Lock()
		i.orders[seq] = o
		i.mu.Unlock()
	}
	return turns, waited, nil
}

// follow finds out which events of one sequence are in turn, those at the given indexes, and whether any is not.
func (i *Inbox) follow(ctx context.Context, seq sequence, o *order, places []place, at []int, turns []bool) (early bool, err error) {
	for _, n := range at {
		// What is below the base was confirmed, or never will be (doc.go).
		o.upTo = max(o.upTo, places[n].base-1)
	}
	var closed map[int64]bool
	for {
		next, first := o.upTo+1, int64(0)
		for _, n := range at {
			p := places[n].position
			turns[n] = p <= next || closed[p]
			if turns[n] {
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
			i.Log.WarnContext(ctx, "inbox does not wait for an event any more", "sender", seq.sender, "position", next, "next", first)
			o.upTo = first - 1
		}
	}
}

// closed moves o over what is closed without a gap, and answers what is closed above it, as far as it was read.
func (i *Inbox) closed(ctx context.Context, seq sequence, o *order) (map[int64]bool, error) {
	for {
		positions, err := query.New(i.Pool).Closed(ctx, query.ClosedParams{Sender: seq.sender, Epoch: seq.epoch, After: o.upTo, AtMost: closedBatch})
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
