package cron

import "time"

// Interval is a time in which something is open.
type Interval struct{ Begin, End time.Time }

// Open returns the first intervals within a time in which all of some calendars are open, at most so many. What is open at an end of the
// time begins or ends there.
func Open(all []Calendar, from, to time.Time, most int) (found []Interval) {
	t := from
	// Each round moves on to where a calendar opens, or finds an interval.
	for range maxChanges {
		if len(found) >= most || !t.Before(to) {
			return found
		}
		begin := t
		for _, c := range all {
			opens, does := c.Opens(begin)
			if !does {
				return found
			}
			begin = opens // which is not before it
		}
		if begin.After(t) {
			t = begin // the calendars before have to be asked again
			continue
		}
		end := to
		for _, c := range all {
			if closes := c.Closes(begin); !closes.IsZero() && closes.Before(end) {
				end = closes
			}
		}
		if !end.After(begin) {
			return found
		}
		if last := len(found) - 1; last >= 0 && found[last].End.Equal(begin) {
			found[last].End = end
		} else {
			found = append(found, Interval{begin, end})
		}
		t = end
	}
	return found
}
