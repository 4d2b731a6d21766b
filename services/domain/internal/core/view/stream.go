package view

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/keylock"
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
	// sharedPages is how many pages are kept for other followers, sharedFor how long, and settledMarks how many settled positions are
	// remembered, at which those are.
	sharedPages  = 4
	sharedFor    = 2 * time.Second
	settledMarks = 8
	// followPage is how many rows a follower holds at most.
	followPage = 200
)

// horizons are the settled positions of organizations that are followed.
type horizons struct {
	mu sync.Mutex
	of map[int64]*horizon
}

// Followed is a row of the journal as followers get it.
type Followed struct {
	core.JournalEntry
	// Rollout and Application are what the row belongs to, as they were when it was read; nil where a single rollout is followed.
	Rollout     *core.Rollout
	Application *core.Application
}

// shared is a page of rows that one follower has read for all that are at the same position.
type shared struct {
	above, upTo int64
	rows        []Followed
	read        time.Time
}

// pages are the latest that followers of an organization have read. A follower that is further behind reads by itself, and holds up nobody.
type pages struct {
	reading keylock.Locks

	mu     sync.Mutex
	latest []shared
	// settled are the latest settled positions.
	settled   []int64
	followers int
}

func (p *pages) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers++
}

// leave forgets the pages with the last follower.
func (p *pages) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.followers--; p.followers == 0 {
		p.latest = nil
	}
}

// mark notes a position that has settled.
func (p *pages) mark(position int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled = append(p.settled, position); len(p.settled) > settledMarks {
		p.settled = slices.Delete(p.settled, 0, len(p.settled)-settledMarks)
	}
}

// current reports whether a follower at a position may be one of many there: where pages end, or what had settled lately does.
func (p *pages) current(after int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.settled, after) || slices.ContainsFunc(p.latest, func(s shared) bool { return s.upTo == after })
}

// at is the page after a position, unless it is too old.
func (p *pages) at(above int64, now time.Time) (shared, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = slices.DeleteFunc(p.latest, func(s shared) bool { return now.Sub(s.read) > sharedFor })
	i := slices.IndexFunc(p.latest, func(s shared) bool { return s.above == above })
	if i < 0 {
		return shared{}, false
	}
	return p.latest[i], true
}

func (p *pages) keep(page shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest = append(p.latest, page); len(p.latest) > sharedPages {
		p.latest = slices.Delete(p.latest, 0, len(p.latest)-sharedPages)
	}
}

// horizon is that of one organization.
type horizon struct {
	pages pages

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
		h.settle(h.pending.Position)
		h.pending = seen
	}
	if seen.Oldest == seen.Next {
		h.settle(seen.Position)
	}
	return h.settled, nil
}

// settle notes that a position has settled. The caller has the lock.
func (h *horizon) settle(position int64) {
	if position > h.settled {
		h.settled = position
		h.pages.mark(position)
	}
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
	h.settle(now.Position)
	return now.Position, nil
}

// Follow sends every row of the organization's journal after a position, or of one rollout's, until ctx ends or send returns
// false. A position of -1 begins with the present, and a rollout of 0 is all of them. Followers of all rollouts share what is read, so that
// many of them cost the database as much as one.
func (u *UseCases) Follow(ctx context.Context, a core.Actor, after, rollout int64, send func(Followed) bool) error {
	if !a.Permissions.Has(core.MayRead) {
		return fault.New(fault.Denied, "following the journal needs the permission %q", core.MayRead)
	}
	p := &u.horizons.get(a.Organization).pages
	p.enter()
	defer p.leave()
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
			page, err := u.journalUpTo(ctx, a.Organization, after, settled, rollout)
			if err != nil {
				return err
			}
			for _, row := range page.rows {
				if !send(row) {
					return nil
				}
			}
			after = page.upTo
		}
		if clock.Sleep(ctx, u.clock, followPause) != nil {
			return nil // the follower has gone
		}
	}
}

// journalUpTo is the next page of rows after a position, up to another: of the whole organization, or of a rollout. Those are
// read by the rollout, so that to follow one costs nothing for what happens to others.
func (u *UseCases) journalUpTo(ctx context.Context, organization, after, settled, rollout int64) (shared, error) {
	if rollout == 0 {
		return u.sharedPage(ctx, organization, after, settled)
	}
	page, err := u.Journal(
		ctx, organization, rollout, core.Page{First: followPage, After: core.CursorOf(after), Before: core.CursorOf(settled + 1)},
	)
	rows := make([]Followed, len(page.Nodes))
	for i, t := range page.Nodes {
		rows[i] = Followed{JournalEntry: core.JournalEntry{RolloutID: rollout, Transition: t}}
	}
	return pageOf(rows, after, settled), err
}

// pageOf is a page that ends with its last row, or where it is not full with the settled position.
func pageOf(rows []Followed, above, settled int64) shared {
	if len(rows) == followPage {
		settled = rows[len(rows)-1].ID
	}
	return shared{above: above, upTo: settled, rows: rows}
}

// sharedPage is the next page of an organization's rows after a position. Of the followers at that position one reads it, with what the
// rows belong to, while the others wait.
func (u *UseCases) sharedPage(ctx context.Context, organization, after, settled int64) (shared, error) {
	p := &u.horizons.get(organization).pages
	if !p.current(after) {
		return u.readPage(ctx, organization, after, settled)
	}
	if page, kept := p.at(after, u.clock.Now()); kept {
		return page, nil
	}
	unlock, err := p.reading.Lock(ctx, strconv.FormatInt(after, 10))
	if err != nil {
		return shared{}, fault.Because(err, fault.Unavailable, "the request ended")
	}
	defer unlock()
	if page, kept := p.at(after, u.clock.Now()); kept { // another has read it meanwhile
		return page, nil
	}
	page, err := u.readPage(ctx, organization, after, settled)
	if err == nil {
		p.keep(page)
	}
	return page, err
}

// readPage reads a page of an organization's rows after a position, with what they belong to.
func (u *UseCases) readPage(ctx context.Context, organization, after, settled int64) (shared, error) {
	began := u.clock.Now()
	entries, err := u.JournalBetween(ctx, organization, core.Range{Above: after, Below: settled + 1, Most: followPage})
	if err != nil {
		return shared{}, err
	}
	rollouts, applications, err := u.belongings(ctx, organization, entries)
	if err != nil {
		return shared{}, err
	}
	rows := make([]Followed, len(entries))
	for i, e := range entries {
		rows[i].JournalEntry = e
		if r, found := rollouts[e.RolloutID]; found {
			rows[i].Rollout = &r
			if a, found := applications[r.ApplicationID]; found {
				rows[i].Application = &a
			}
		}
	}
	page := pageOf(rows, after, settled)
	page.read = began
	return page, nil
}

// belongings reads the rollouts of rows, and their applications.
func (u *UseCases) belongings(
	ctx context.Context, organization int64, entries []core.JournalEntry,
) (map[int64]core.Rollout, map[int64]core.Application, error) {
	ids := make([]int64, len(entries))
	for i, e := range entries {
		ids[i] = e.RolloutID
	}
	rollouts, err := u.RolloutsByID(ctx, organization, core.Distinct(ids))
	if err != nil {
		return nil, nil, err
	}
	ids = ids[:0]
	for _, r := range rollouts {
		ids = append(ids, r.ApplicationID)
	}
	applications, err := u.ApplicationsByID(ctx, organization, core.Distinct(ids))
	return rollouts, applications, err
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
