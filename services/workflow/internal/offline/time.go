package offline

import "time"

// nextAttempt is when a call is attempted again; zero: none is.
func (w *world) nextAttempt() (next time.Time) {
	for _, r := range w.runs {
		for _, o := range r.open {
			if o.next.After(w.now) && (next.IsZero() || o.next.Before(next)) {
				next = o.next
			}
		}
	}
	return next
}

// nextTime is when something happens by itself; zero: never.
func (w *world) nextTime() (next time.Time) {
	for _, r := range w.runs {
		for _, o := range r.open {
			at := o.due
			if o.next.After(w.now) {
				at = earlier(at, o.next)
			}
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	if next.Before(w.now) && !next.IsZero() {
		return w.now
	}
	return next
}
