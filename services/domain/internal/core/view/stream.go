package view

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Following the journal. Positions are given out before the commit, so the last row that can be seen says nothing about
// those before it: a reader that went by it would skip whatever commits late. A position counts as settled once every
// transaction that was under way when it was seen has ended; followers read up to there, each from its own position. So
// what a follower has received is everything, in order, once, whichever replica sends it, and after any restart.

const (
	// followPause is how soon a follower looks again.
	followPause = 250 * time.Millisecond
	// settledFor is how long one look serves all followers of an organization.
	settledFor = 200 * time.Millisecond
	// presentWithin is how long it may take until what exists at an instant has settled, and presentPause how soon that
	// is looked at again.
	presentWithin = 5 * time.Second
	presentPause  = 10 * time.Millisecond
	// followPage is how many rows a follower holds at most.
	followPage = 200
)

// horizons are the settled positions of organizations that are followed.
type horizons struct {
	mu sync.Mutex
	of map[int64]*horizon
}

// horizon is that of one organization.
type horizon struct {
	mu sync.Mutex
	// looked is when it was looked at last.
	looked time.Time
	// pending is the last look that has not settled yet.
	pending core.Horizon
	settled int64
}

func (h *horizons) get(organization int64) *horizon {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[int64]*horizon{}
	}
	one, ok := h.of[organization]
	if !ok {
		one = &horizon{}
		h.of[organization] = one
	}
	return one
}

// settledPosition is up to where nothing of an organization's journal is missing any more.
func (u *UseCases) settledPosition(ctx context.Context, organization int64) (int64, error) {
	h := u.horizons.get(organization)
	h.mu.Lock()
	defer h.mu.Unlock()
	now := u.clock.Now()
	if now.Sub(h.looked) < settledFor {
		return h.settled, nil
	}
	seen, err := u.JournalHorizon(ctx, organization)
	if err != nil {
		return h.settled, err
	}
	h.looked = now
	// What was pending has settled when all that was under way then has ended; what is seen now, when nothing is.
	if seen.Oldest >= h.pending.Next {
		h.settled, h.pending = max(h.settled, h.pending.Position), seen
	}
	if seen.Oldest == seen.Next {
		h.settled = max(h.settled, seen.Position)
	}
	return h.settled, nil
}

// Present is the position where an organization's journal ends now: nothing below it is missing, and what begins after
// this call is above it. It waits for the transactions that are under way. One that takes long makes it Unavailable.
func (u *UseCases) Present(ctx context.Context, organization int64) (int64, error) {
	now, err := u.JournalHorizon(ctx, organization)
	if err != nil {
		return 0, err
	}
	for began, seen := u.clock.Now(), now; seen.Oldest < now.Next; {
		if u.clock.Now().Sub(began) > presentWithin {
			return 0, fault.New(
				fault.Unavailable, "a transaction in the database has been under way for more than %s: the end of the journal cannot be determined",
				presentWithin,
			)
		}
		if err := clock.Sleep(ctx, u.clock, presentPause); err != nil {
			return 0, fault.Because(err, fault.Unavailable, "the request ended")
		}
		if seen, err = u.JournalHorizon(ctx, organization); err != nil {
			return 0, err
		}
	}
	h := u.horizons.get(organization)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled = max(h.settled, now.Position)
	return now.Position, nil
}

// Follow sends every row of the organization's journal after a position, or of one rollout's, until ctx ends or send returns
// false. A position of -1 begins with the present, and a rollout of 0 is all of them.
func (u *UseCases) Follow(ctx context.Context, a core.Actor, after, rollout int64, send func(core.JournalEntry) bool) error {
	if !a.Permissions.Has(core.MayRead) {
		return fault.New(fault.Denied, "following the journal needs the permission %q", core.MayRead)
	}
	if after < 0 {
		var err error
		if after, err = u.Present(ctx, a.Organization); err != nil {
			return err
		}
	}
	for {
		settled, err := u.settledPosition(ctx, a.Organization)
		if err != nil {
			return err
		}
		for after < settled {
			rows, err := u.journalUpTo(ctx, a.Organization, after, settled, rollout)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if !send(row) {
					return nil
				}
				after = row.ID
			}
			if len(rows) < followPage {
				after = settled
			}
		}
		if clock.Sleep(ctx, u.clock, followPause) != nil {
			return nil //nolint:nilerr // the follower has gone
		}
	}
}

// journalUpTo is the next page of rows after a position, up to another: of the whole organization, or of a rollout. Those are
// read by the rollout, so that to follow one costs nothing for what happens to others.
func (u *UseCases) journalUpTo(ctx context.Context, organization, after, settled, rollout int64) ([]core.JournalEntry, error) {
	if rollout == 0 {
		return u.JournalBetween(ctx, organization, core.Range{Above: after, Below: settled + 1, Most: followPage})
	}
	page, err := u.Journal(
		ctx, organization, rollout, core.Page{First: followPage, After: core.CursorOf(after), Before: core.CursorOf(settled + 1)},
	)
	rows := make([]core.JournalEntry, len(page.Nodes))
	for i, t := range page.Nodes {
		rows[i] = core.JournalEntry{RolloutID: rollout, Transition: t}
	}
	return rows, err
}

// JournalOf is a page of the organization's whole journal as it can be seen, oldest first. To follow on, take Present: below
// the end of what can be seen a row may still come.
func (u *UseCases) JournalOf(ctx context.Context, organization int64, p core.Page) (core.Slice[core.JournalEntry], error) {
	w, err := p.Open(core.JournalList, core.OrderCreated)
	if err != nil {
		return core.Slice[core.JournalEntry]{}, err
	}
	rows, err := u.JournalBetween(
		ctx, organization, core.Range{Above: w.Above.Number, Below: w.Below.Number, Falling: w.Falling, Most: w.Limit()},
	)
	return core.Cut(w, rows, func(e core.JournalEntry) core.Position { return core.Position{Number: e.ID} }), err
}
