package limit

// Programs make rows as well: children, events and generations. They cannot be refused like callers, because a program has nobody who would
// try again later, and what it did is in its history. So
//
//   - a child beyond the open runs, and a child or an event beyond the storage, is an error of that operation, which its program can catch;
//   - a run that has made more often than it may continues later (debt.go), and has no place meanwhile;
//   - the next generation of a run waits until there is storage (Full).
//
// The runs of the domain service are never refused, and have rates of their own, so that the programs of an organization do not slow its
// rollouts.

// rates are those of starts and events.
type rates struct{ starts, events rate }

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

// Child admits a child with so many bytes of inputs, or refuses it with fault.Limited; not those of the domain service's runs. It counts as
// open until Settle.
func (l *Limiter) Child(p Program, bytes int) error {
	if l.none.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t, of := l.tenant(p.Organization), l.of(p.Organization)
	if !p.Domain {
		if err := l.place(t, of, p.Organization); err != nil {
			return err
		}
		if err := l.room(t, of, p.Organization); err != nil {
			return err
		}
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
func (l *Limiter) Wrote(organization, bytes int64) {
	if l.none.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tenant(organization).stored += bytes
}

// FullOf is Full for the programs of an organization's own.
func (l *Limiter) FullOf(organization int64) bool { return l.Full(Program{Organization: organization}) }

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
