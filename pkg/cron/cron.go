// Package cron computes when a cron expression is due in a time zone, with the clock's changes.
package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // images have no time zones of their own

	"github.com/robfig/cron/v3"
)

// MaxBytes bounds an expression.
const MaxBytes = 256

// Parse reads an expression of five fields (minute, hour, day of the month, month, day of the week), or @hourly, @daily, @weekly, @monthly,
// @yearly.
func Parse(text string) (Expression, error) {
	if len(text) > MaxBytes {
		return Expression{}, fmt.Errorf("found %d bytes, expected at most %d", len(text), MaxBytes)
	}
	if strings.Contains(text, "TZ=") {
		return Expression{}, errors.New("found a time zone, expected it outside of the expression")
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	parsed, err := parser.Parse(text)
	if err != nil {
		return Expression{}, fmt.Errorf("parse: %w", err)
	}
	fields, is := parsed.(*cron.SpecSchedule)
	if !is {
		return Expression{}, errors.New("found an interval, expected fields")
	}
	e := Expression{fields: *fields, hourly: fields.Hour&starBit != 0}
	e.fields.Location = time.UTC
	// From a leap year on, every expression that has a date has one within the five years that the library looks ahead.
	if e.fields.Next(time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Expression{}, errors.New("no date matches it")
	}
	return e, nil
}

// starBit is how the parser marks a field that is *.
const starBit = 1 << 63

// Expression is a cron expression. It is evaluated on a calendar without changes of the clock, whose times are then placed into a time
// zone.
type Expression struct {
	fields cron.SpecSchedule
	// hourly reports whether it holds in every hour. Then it follows the time that passes: in an hour that is repeated it is due again,
	// and in one that is skipped it is not due. Otherwise it follows the clock on the wall: what falls into a repeated hour is due in
	// the first one only, and what falls into a skipped one is due when the clock has jumped. A day has each of its times once.
	hourly bool
}

// longestShift is more than clocks are set back at once.
const longestShift = 3 * time.Hour

// Next is the first time after t at which the expression is due in a time zone; zero if there is none.
func (w Expression) Next(t time.Time, location *time.Location) time.Time {
	for at := onWall(t.In(location)).Add(-longestShift); ; {
		if at = w.fields.Next(at); at.IsZero() {
			return time.Time{}
		}
		first, second, exists := place(at, location)
		switch {
		case !exists && w.hourly:
		case first.After(t):
			if w.hourly {
				return w.earlier(first, at, t, location)
			}
			return first
		case w.hourly && second.After(t):
			return w.earlier(second, at, t, location)
		}
	}
}

// earlier is found, unless a later time on the wall comes before it: during the first of two equal hours, the second one of an early
// minute is found before the first one of a late minute.
func (w Expression) earlier(found, at, t time.Time, location *time.Location) time.Time {
	for border := at.Add(longestShift); ; {
		if at = w.fields.Next(at); at.IsZero() || at.After(border) {
			return found
		}
		first, _, exists := place(at, location)
		if exists && first.After(t) && first.Before(found) {
			return first
		}
		if exists && !first.Before(found.Add(longestShift)) {
			return found
		}
	}
}

// onWall is the clock on the wall, as a time of UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// place is when the clock on the wall shows a time: once, twice (second is not zero), or not at all, where first is when it jumps over it.
func place(at time.Time, location *time.Location) (first, second time.Time, exists bool) {
	t := time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, location)
	begin, end := t.ZoneBounds()
	if shown := onWall(t); !shown.Equal(at) {
		if shown.After(at) { // read with the offset before the jump
			return begin, time.Time{}, false
		}
		return end, time.Time{}, false
	}
	if !begin.IsZero() {
		if before := t.Add(gained(begin)); before.Before(begin) && onWall(before).Equal(at) {
			return before, t, true
		}
	}
	if !end.IsZero() {
		if after := t.Add(-gained(end)); !after.Before(end) && onWall(after).Equal(at) {
			return t, after, true
		}
	}
	return t, time.Time{}, true
}

// gained is how far the clock on the wall jumps ahead at a transition; below zero where it is set back.
func gained(transition time.Time) time.Duration {
	_, before := transition.Add(-time.Second).Zone()
	_, after := transition.Zone()
	return time.Duration(after-before) * time.Second
}
