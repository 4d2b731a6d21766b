package limit

import (
	"container/heap"
	"time"
)

// A turn of a program is stored as it is, whatever the rates of its organization are. What it has made beyond them is a debt, and the run
// continues when that is paid.
//
// Callers and programs share one bucket. What the bucket gains goes to callers first, up to their part of it (reserve), then to debts, in
// equal parts to all turns that have some, and then to the rest of the bucket, of which programs may take as well. So a run that has made
// little does not wait for all that another one has made. A debt is at most what one turn makes, because a run with a debt has no next
// turn.

// rate is a bucket with debts.
type rate struct {
	bucket

	// paid is what each turn that always had a debt would have been paid so far. A debt ends where paid has come to its mark.
	paid float64
	// marks are the ends of the debts.
	marks marks
	// left is the mark until which new runs wait: that of a run that has ended with a debt.
	left float64
}

// marks is a heap, the lowest first.
type marks []float64

func (m marks) Len() int           { return len(m) }
func (m marks) Less(i, j int) bool { return m[i] < m[j] }
func (m marks) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }

// Push adds a mark, for package heap.
func (m *marks) Push(x any) {
	if mark, is := x.(float64); is {
		*m = append(*m, mark)
	}
}

// Pop removes the last mark, for package heap.
func (m *marks) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// reserve is the part of a bucket that only callers take.
func reserve(burst float64) float64 { return max(burst/2, 1) }

// gain has the rate have what it gained since it was last used.
func (r *rate) gain(perSecond float64, now time.Time) {
	if r.at.IsZero() {
		r.tokens, r.at = max(perSecond, 1), now
		return
	}
	gained := perSecond * max(0, now.Sub(r.at).Seconds())
	r.at = now
	callers := min(gained, max(0, reserve(perSecond)-r.tokens))
	r.tokens += callers
	r.tokens = min(max(perSecond, 1), r.tokens+r.pay(gained-callers))
}

// pay pays debts, and returns what is left.
func (r *rate) pay(gained float64) float64 {
	for gained > 0 && len(r.marks) > 0 {
		n := float64(len(r.marks))
		if due := (r.marks[0] - r.paid) * n; due > gained {
			r.paid += gained / n
			return 0
		} else if r.paid = max(r.paid, r.marks[0]); due > 0 {
			gained -= due
		}
		heap.Pop(&r.marks)
	}
	return gained
}

// take takes a token for a caller. If there is none, wait is about the time until there is.
func (r *rate) take(perSecond float64, now time.Time) (ok bool, wait time.Duration) {
	if r.gain(perSecond, now); r.tokens < 1 {
		return false, time.Duration((1 - r.tokens) / perSecond * float64(time.Second))
	}
	r.tokens--
	return true, 0
}

// free is how many tokens programs may take now.
func (r *rate) free(perSecond float64, now time.Time) float64 {
	r.gain(perSecond, now)
	return max(0, r.tokens-reserve(perSecond))
}

// owe takes so many for a turn of a run whose debt before ends at a mark, and returns the mark of its debt now.
func (r *rate) owe(n int, before, perSecond float64, now time.Time) float64 {
	free := min(r.free(perSecond, now), float64(n))
	r.tokens -= free
	if float64(n) <= free {
		return before
	}
	mark := max(r.paid, before) + float64(n) - free
	heap.Push(&r.marks, mark)
	return mark
}

// until is about how long it takes to pay a debt; 0: it is paid.
func (r *rate) until(mark, perSecond float64, now time.Time) time.Duration {
	if r.gain(perSecond, now); mark <= r.paid {
		return 0
	}
	return max(time.Millisecond, time.Duration((mark-r.paid)*float64(max(1, len(r.marks)))/perSecond*float64(time.Second)))
}

// forgive ends all debts: there is no limit.
func (r *rate) forgive() {
	for _, mark := range r.marks {
		r.paid = max(r.paid, mark)
	}
	r.marks = nil
}

// Debt is what a run has made beyond the rates of its organization.
type Debt struct{ starts, events float64 }

// Owe counts what a stored turn has made of a run with a debt from before, and returns the debt of the run.
func (l *Limiter) Owe(p Program, before Debt, starts, events int) Debt {
	if l.none.Load() || starts+events == 0 {
		return before
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, of, r, t := l.clock.Now(), l.of(p.Organization), l.rates(p), l.tenant(p.Organization)
	after := before
	if of.StartsPerSecond > 0 && starts > 0 {
		after.starts = r.starts.owe(starts, before.starts, l.share(of.StartsPerSecond), now)
	}
	if of.EventsPerSecond > 0 && events > 0 {
		after.events = r.events.owe(events, before.events, l.share(of.EventsPerSecond), now)
	}
	t.used[Starts].add(starts, now)
	t.used[Events].add(events, now)
	if after.starts > before.starts {
		l.waits[Starts].Add(1)
	}
	if after.events > before.events {
		l.waits[Events].Add(1)
	}
	return after
}

// Due is about how long it takes to pay a debt; 0: it is paid, or there is no limit any more.
func (l *Limiter) Due(p Program, d Debt) time.Duration {
	if l.none.Load() || d == (Debt{}) {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, of, r := l.clock.Now(), l.of(p.Organization), l.rates(p)
	due := time.Duration(0)
	if of.StartsPerSecond > 0 {
		due = r.starts.until(d.starts, l.share(of.StartsPerSecond), now)
	} else {
		r.starts.forgive()
	}
	if of.EventsPerSecond > 0 {
		due = max(due, r.events.until(d.events, l.share(of.EventsPerSecond), now))
	} else {
		r.events.forgive()
	}
	return due
}

// Leave notes that a run has ended with a debt: new runs of its organization wait until that is paid (Begins). Otherwise programs that end
// after each turn would have no rates.
func (l *Limiter) Leave(p Program, d Debt) {
	if l.none.Load() || d == (Debt{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rates(p)
	r.starts.left, r.events.left = max(r.starts.left, d.starts), max(r.events.left, d.events)
}

// Begins is the debt until which a run waits that begins now.
func (l *Limiter) Begins(p Program) Debt {
	if l.none.Load() {
		return Debt{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rates(p)
	return Debt{r.starts.left, r.events.left}
}

// Free reports whether a turn with so many events would have no debt.
func (l *Limiter) Free(p Program, events int) bool {
	if l.none.Load() || events == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(p.Organization)
	return of.EventsPerSecond == 0 || l.rates(p).events.free(l.share(of.EventsPerSecond), l.clock.Now()) >= float64(events)
}

// rates are those that programs have; called under the lock.
func (l *Limiter) rates(p Program) *rates {
	if p.Domain {
		return &l.tenant(p.Organization).domain
	}
	return &l.tenant(p.Organization).own
}
