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
	// Work is how much the search may be, about the days of calendars that are looked at; it is counted down.
	Work int
	// Known is what was found out of windows, for several searches; nil for nothing.
	Known Known
}

// Known is when windows begin, as far as a search knows.
type Known map[window]due

type window struct {
	text, zone string
	// length distinguishes the two questions of a search.
	length time.Duration
}

// due is that nothing begins between two times; a begin that is zero is never.
type due struct{ after, begin time.Time }

// never is how many days are looked at before a window is known never to begin.
const never = 5 * 366

// asker asks windows when they begin, until that was enough work; nil asks without an end.
type asker struct {
	ctx   context.Context //nolint:containedctx // it lives as long as a search
	left  *int
	known Known
	ended bool
}

func (a *asker) over() bool { return a != nil && a.ended }

// next is when a window begins after a time; zero for never.
func (a *asker) next(w span, length time.Duration, t time.Time) time.Time {
	if a == nil {
		return w.start.Next(t, w.location)
	}
	if *a.left--; *a.left < 0 || a.ctx.Err() != nil {
		a.ended = true
	}
	if a.ended {
		return time.Time{}
	}
	key := window{w.text, w.location.String(), length}
	if d, is := a.known[key]; is && !t.Before(d.after) && (d.begin.IsZero() || t.Before(d.begin)) {
		return d.begin
	}
	begin := w.start.Next(t, w.location)
	if begin.IsZero() {
		*a.left -= never
	} else {
		*a.left -= int(begin.Sub(t) / (24 * time.Hour))
	}
	a.known[key] = due{t, begin}
	return begin
}

// Open returns the first intervals within a time in which all of some calendars are open. What is open at an end of the time begins or ends
// there. The intervals are complete until known, which is before the end of the time if there are more of them, the search was too
// much work, or ctx is done.
func Open(ctx context.Context, all []Calendar, s *Search) (found []Interval, known time.Time) {
	if s.Known == nil {
		s.Known = Known{}
	}
	a := &asker{ctx: ctx, left: &s.Work, known: s.Known}
	t := s.From
	// Each round moves on to where a calendar opens, or finds an interval.
	for t.Before(s.To) && len(found) <= s.Most && !a.over() {
		begin, known := opening(all, t, s.To, a)
		if !known.IsZero() {
			return found, known
		}
		if begin.After(t) {
			t = begin // the calendars before have to be asked again
			continue
		}
		end := s.To
		for _, c := range all {
			if closes := c.closes(begin, a); !closes.IsZero() && closes.Before(end) {
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
func opening(all []Calendar, from, to time.Time, a *asker) (begin, known time.Time) {
	begin = from
	for _, c := range all {
		opens, does := c.opens(begin, a)
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
