package cron

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The bounds of a Schedule.
const (
	// MaxWindows is how many windows each list of a schedule may have.
	MaxWindows = 40
	// MaxWindow is how long a window may be.
	MaxWindow = 31 * 24 * time.Hour
	// maxAsked is how often a search for a change of a schedule asks a window when it begins: what a search costs is bounded.
	maxAsked = 20_000
	// maxChanges is after how many changes a search ends.
	maxChanges = 500
)

// Schedule says when something is open: during any window of Allow, or always if there is none, but never during a window of Exclude.
type Schedule struct {
	Allow   []Window `json:"allow,omitempty"`
	Exclude []Window `json:"exclude,omitempty"`
	// TimeZone is an IANA name, for the windows that have none of their own; empty is UTC.
	TimeZone string `json:"time_zone,omitempty"`
}

// Window is a time that begins whenever an expression is due.
type Window struct {
	// Cron is when it begins.
	Cron string `json:"cron"`
	// Duration is how long it lasts, in seconds that pass.
	Duration int `json:"duration"`
	// TimeZone is an IANA name; empty is that of the schedule.
	TimeZone string `json:"time_zone,omitempty"`
	// Description is for people.
	Description string `json:"description,omitempty"`
}

// With are the windows of two schedules, each in its time zone.
func (s Schedule) With(o Schedule) Schedule {
	in := func(zone string, all []Window) []Window {
		placed := slices.Clone(all)
		for i := range placed {
			if placed[i].TimeZone == "" {
				placed[i].TimeZone = zone
			}
		}
		return placed
	}
	return Schedule{
		Allow:   append(in(s.zone(), s.Allow), in(o.zone(), o.Allow)...),
		Exclude: append(in(s.zone(), s.Exclude), in(o.zone(), o.Exclude)...),
	}
}

func (s Schedule) zone() string {
	if s.TimeZone == "" {
		return "UTC"
	}
	return s.TimeZone
}

// Calendar is a Schedule that was read.
type Calendar struct{ allow, exclude []span }

type span struct {
	start    Expression
	length   time.Duration
	location *time.Location
	name     string
	text     string
}

// Calendar reads a schedule. The findings are JSON pointers into it; there is a calendar if there are none.
func (s Schedule) Calendar() (Calendar, []fault.Field) {
	var found []fault.Field
	global, err := zone(s.TimeZone, time.UTC)
	if err != nil {
		found = append(found, fault.Field{Name: "/time_zone", Problem: err.Error()})
	}
	read := func(at string, all []Window) []span {
		if len(all) > MaxWindows {
			found = append(found, fault.Field{Name: at, Problem: fmt.Sprintf("found %d windows; expected at most %d", len(all), MaxWindows)})
			return nil
		}
		spans := make([]span, len(all))
		for i, w := range all {
			at := at + "/" + strconv.Itoa(i)
			one := span{length: time.Duration(w.Duration) * time.Second, name: w.Description, text: w.Cron}
			if one.name == "" {
				one.name = w.Cron
			}
			if one.length < time.Minute || one.length > MaxWindow {
				found = append(found, fault.Field{
					Name: at + "/duration", Problem: fmt.Sprintf("found %d seconds; expected 60 to %d", w.Duration, int(MaxWindow/time.Second)),
				})
			}
			var err error
			if one.start, err = Parse(w.Cron); err != nil {
				found = append(found, fault.Field{Name: at + "/cron", Problem: fmt.Sprintf(
					"found %.80q; expected five fields (minute, hour, day of the month, month, day of the week): %v", w.Cron, err,
				)})
			}
			if one.location, err = zone(w.TimeZone, global); err != nil {
				found = append(found, fault.Field{Name: at + "/time_zone", Problem: err.Error()})
			}
			spans[i] = one
		}
		return spans
	}
	c := Calendar{read("/allow", s.Allow), read("/exclude", s.Exclude)}
	if len(found) > 0 {
		return Calendar{}, found
	}
	return c, nil
}

func zone(name string, otherwise *time.Location) (*time.Location, error) {
	if name == "" {
		return otherwise, nil
	}
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("found %.80q; expected an IANA time zone such as Europe/Berlin, or UTC", name)
	}
	return location, nil
}

// covering is the window that an instant is in and that ends last, of those that have begun first; false if it is in none.
func covering(all []span, t time.Time) (name string, end time.Time, found bool) {
	return (*asker)(nil).covering(all, t)
}

func (a *asker) covering(all []span, t time.Time) (name string, end time.Time, found bool) {
	for _, w := range all {
		// A window that began at its length before t is over.
		begin := a.next(w, w.length, t.Add(-w.length))
		if begin.IsZero() || begin.After(t) {
			continue
		}
		if e := begin.Add(w.length); !found || e.After(end) {
			name, end, found = w.name, e, true
		}
	}
	return name, end, found
}

// first is when the next window begins after an instant; zero if none does.
func (a *asker) first(all []span, t time.Time) time.Time {
	var first time.Time
	for _, w := range all {
		if begin := a.next(w, 0, t); !begin.IsZero() && (first.IsZero() || begin.Before(first)) {
			first = begin
		}
	}
	return first
}

// At reports whether it is open at an instant, and the window that makes it so or keeps it closed; empty if none does.
func (c Calendar) At(t time.Time) (open bool, window string) {
	if name, _, excluded := covering(c.exclude, t); excluded {
		return false, name
	}
	name, _, allowed := covering(c.allow, t)
	return allowed || len(c.allow) == 0, name
}

// Opens is the first instant from t on at which it is open. If none is found, it is how far the search came, or zero if there is none.
func (c Calendar) Opens(t time.Time) (time.Time, bool) { return c.opens(t, nil) }

// opens is Opens until it was enough work.
func (c Calendar) opens(t time.Time, a *asker) (time.Time, bool) {
	for range c.changes() {
		_, end, excluded := a.covering(c.exclude, t)
		if a.over() {
			return t, false
		}
		if excluded {
			t = end
			continue
		}
		_, _, allowed := a.covering(c.allow, t)
		if a.over() {
			return t, false
		}
		if allowed || len(c.allow) == 0 {
			return t, true
		}
		begin := a.first(c.allow, t)
		if a.over() {
			return t, false
		}
		if t = begin; t.IsZero() {
			return t, false
		}
	}
	return t, false
}

// changes is how many changes a search looks at.
func (c Calendar) changes() int {
	return min(maxChanges, maxAsked/max(1, len(c.allow)+len(c.exclude)))
}

// Closes is until when it stays open that is open at t; zero if it never closes. One that stays open for very many windows may close later.
func (c Calendar) Closes(t time.Time) time.Time { return c.closes(t, nil) }

// closes is Closes until it was enough work: it may close later than it answers then.
func (c Calendar) closes(t time.Time, a *asker) time.Time {
	limit := a.first(c.exclude, t)
	if a.over() {
		return t
	}
	if len(c.allow) == 0 {
		return limit
	}
	for range c.changes() {
		_, end, allowed := a.covering(c.allow, t)
		if !allowed || a.over() {
			break
		}
		if t = end; !limit.IsZero() && !t.Before(limit) {
			return limit
		}
	}
	return t
}
