package cron

import (
	"context"
	"time"
)

// Interval is a time in which something is open.
type Interval struct{ Begin, End time.Time }

// Search is where intervals are searched, and how much work that may be.
type Search struct {
	From, To time.Time
	// Most is how many intervals are found.
	Most int
	// Asked is how often windows may be asked when they begin; a search counts it down.
	Asked int
}

// Open returns the first intervals within a time in which all of some calendars are open. What is open at an end of the time begins or ends
// there. The intervals are complete until known, which is before the end of the time if there are more of them, the search was too
// much work, or ctx is done.
func Open(ctx context.Context, all []Calendar, s *Search) (found []Interval, known time.Time) {
	may := func(windows int) bool {
		if s.Asked <= 0 || ctx.Err() != nil {
			return false
		}
		s.Asked -= max(1, windows)
		return true
	}
	t := s.From
	// Each round moves on to where a calendar opens, or finds an interval.
	for t.Before(s.To) && len(found) <= s.Most && may(1) {
		begin, known := opening(all, t, s.To, may)
		if !known.IsZero() {
			return found, known
		}
		if begin.After(t) {
			t = begin // the calendars before have to be asked again
			continue
		}
		end := s.To
		for _, c := range all {
			if closes := c.closes(begin, may); !closes.IsZero() && closes.Before(end) {
				end = closes
			}
		}
		if !end.After(begin) {
			return found, begin
		}
		last := len(found) - 1
		switch {
		case last >= 0 && found[last].End.Equal(begin):
			found[last].End = end
		case len(found) == s.Most:
			return found, begin
		default:
			found = append(found, Interval{begin, end})
		}
		t = end
	}
	return found, t
}

// opening is when calendars, one after the other, are open from a time on. known is set if that is not found until to: it is how far the
// search came.
func opening(all []Calendar, from, to time.Time, may func(windows int) bool) (begin, known time.Time) {
	begin = from
	for _, c := range all {
		opens, does := c.opens(begin, may)
		switch {
		case does && opens.Before(to):
			begin = opens // which is not before it
		case does, opens.IsZero(), opens.After(to):
			return begin, to
		default:
			return begin, opens
		}
	}
	return begin, time.Time{}
}
