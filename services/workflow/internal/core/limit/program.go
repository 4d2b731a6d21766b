package limit

import "time"

// Programs make rows as well: children, events and generations. They cannot be refused like callers, because a program has nobody who would
// try again later, and what it did is in its history. So
//
//   - a child beyond the open runs, and a child or an event beyond the storage, is an error of that operation, which its program can catch;
//   - what is more often than it may waits: the turn that makes it is stored later (Pace), and the run has no place meanwhile;
//   - the next generation of a run waits until there is storage (Full).
//
// The runs of the domain service are never refused, and have rates of their own, so that the programs of an organization do not slow its
// rollouts.

// rates are what starts and events of programs take from. Calls of the API take from them as well, and not the other way round: callers
// come first, and together no more is done than the limits permit.
type rates struct{ starts, events bucket }

// owe takes a token, also one that the bucket does not have.
func (b *bucket) owe(rate float64, now time.Time) {
	b.fill(rate, rate, now)
	b.tokens--
}

// pace takes tokens, also those that the bucket does not have yet, and returns the time until it has.
func (b *bucket) pace(n int, limit int64, rate float64, now time.Time) time.Duration {
	if n == 0 || limit == 0 {
		return 0
	}
	b.fill(rate, rate, now)
	b.tokens -= float64(n)
	return max(0, time.Duration(-b.tokens/rate*float64(time.Second)))
}

// short reports whether a bucket has fewer than so many tokens.
func (b *bucket) short(n int, limit int64, rate float64, now time.Time) bool {
	if n == 0 || limit == 0 {
		return false
	}
	b.fill(rate, rate, now)
	return b.tokens < float64(n)
}

// Program is a run of a program that makes rows.
type Program struct {
	Organization int64
	// Domain is set for a run of the domain service.
	Domain bool
}

// Bounded reports whether the organization has limits now.
func (l *Limiter) Bounded(organization int64) bool {
	if l.none.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(organization) != Limits{}
}

// Child admits a child with so many bytes of inputs, or refuses it with fault.Limited. It counts as open until Settle.
func (l *Limiter) Child(p Program, bytes int) error {
	if l.none.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t, of := l.tenant(p.Organization), l.of(p.Organization)
	if err := l.place(t, of, p.Organization); err != nil {
		return err
	}
	if err := l.room(t, of, p.Organization); err != nil {
		return err
	}
	t.claimed++
	t.stored += int64(bytes)
	return nil
}

// Settle ends the claims of children: their turn was stored, which counts them, or will not be.
func (l *Limiter) Settle(organization int64, children int) {
	if children == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(organization)
	t.claimed = max(0, t.claimed-int64(children))
}

// Emit admits an event with so many bytes of data, or refuses it with fault.Limited.
func (l *Limiter) Emit(p Program, bytes int) error {
	if l.none.Load() || p.Domain {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(p.Organization)
	if err := l.room(t, l.of(p.Organization), p.Organization); err != nil {
		return err
	}
	t.stored += int64(bytes)
	return nil
}

// Wrote counts what a run has added to its history, in bytes.
func (l *Limiter) Wrote(organization int64, bytes int64) {
	if l.none.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tenant(organization).stored += bytes
}

// Pace takes the starts and events of a turn from the organization's rates, and returns how long the turn has to wait.
func (l *Limiter) Pace(p Program, starts, events int) time.Duration {
	if l.none.Load() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, of, r := l.clock.Now(), l.of(p.Organization), l.rates(p)
	forStarts := r.starts.pace(starts, of.StartsPerSecond, l.share(of.StartsPerSecond), now)
	forEvents := r.events.pace(events, of.EventsPerSecond, l.share(of.EventsPerSecond), now)
	t := l.tenant(p.Organization)
	t.used[Starts].add(starts, now)
	t.used[Events].add(events, now)
	if forStarts > 0 {
		l.waits[Starts].Add(1)
	}
	if forEvents > 0 {
		l.waits[Events].Add(1)
	}
	return max(forStarts, forEvents)
}

// TryEvents takes events from the rate if there is no wait for them, and reports whether it did.
func (l *Limiter) TryEvents(p Program, events int) bool {
	if l.none.Load() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, of, r := l.clock.Now(), l.of(p.Organization), l.rates(p)
	if r.events.short(events, of.EventsPerSecond, l.share(of.EventsPerSecond), now) {
		return false
	}
	l.tenant(p.Organization).used[Events].add(events, now)
	r.events.pace(events, of.EventsPerSecond, l.share(of.EventsPerSecond), now)
	return true
}

// rates is called under the lock.
func (l *Limiter) rates(p Program) *rates {
	if p.Domain {
		return &l.tenant(p.Organization).domain
	}
	return &l.tenant(p.Organization).own
}

// Full reports whether an organization has no storage left for a next generation of a run. Runs of the domain service have it always.
func (l *Limiter) Full(p Program) bool {
	if l.none.Load() || p.Domain {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(p.Organization)
	return of.StorageBytes > 0 && l.tenant(p.Organization).stored >= of.StorageBytes
}

// NoteFull counts a generation that waits because of Full.
func (l *Limiter) NoteFull() { l.waits[Storage].Add(1) }

// Waits returns how often programs of this process have waited, by kind.
func (l *Limiter) Waits() (counts [kinds]int64) {
	for kind := range counts {
		counts[kind] = l.waits[kind].Load()
	}
	return counts
}
