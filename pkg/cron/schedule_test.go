package cron_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/cron"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestScheduleAt (R3-27): windows of one list are merged with OR, exclude beats allow, without allow it is open but for exclusions, and a
// time zone is that of the window, then of the schedule, then UTC. 2026-11-23 is a Monday.
func TestScheduleAt(t *testing.T) {
	t.Parallel()
	const hour = 3600
	office := cron.Window{Cron: "0 9 * * 1-5", Duration: 8 * hour, Description: "office hours"}
	lunch := cron.Window{Cron: "0 12 * * *", Duration: hour, Description: "lunch"}
	newYork := cron.Window{Cron: "0 9 * * 1-5", Duration: 8 * hour, TimeZone: "America/New_York"}
	for _, one := range []struct {
		name     string
		schedule cron.Schedule
		at       string
		open     bool
		window   string
		change   string // when it changes next
	}{
		{"before", cron.Schedule{Allow: []cron.Window{office}}, "2026-11-23T08:59:59Z", false, "", "2026-11-23T09:00:00Z"},
		{"the first instant", cron.Schedule{Allow: []cron.Window{office}}, "2026-11-23T09:00:00Z", true, "office hours", "2026-11-23T17:00:00Z"},
		{"the last instant", cron.Schedule{Allow: []cron.Window{office}}, "2026-11-23T16:59:59Z", true, "office hours", "2026-11-23T17:00:00Z"},
		{"the end", cron.Schedule{Allow: []cron.Window{office}}, "2026-11-23T17:00:00Z", false, "", "2026-11-24T09:00:00Z"},
		{"weekend", cron.Schedule{Allow: []cron.Window{office}}, "2026-11-27T18:00:00Z", false, "", "2026-11-30T09:00:00Z"},
		{"OR", cron.Schedule{Allow: []cron.Window{office, newYork}}, "2026-11-23T18:00:00Z", true, "0 9 * * 1-5", "2026-11-23T22:00:00Z"},
		{"OR across a border", cron.Schedule{Allow: []cron.Window{office, newYork}}, "2026-11-23T10:00:00Z", true, "office hours", "2026-11-23T22:00:00Z"},
		{"exclude beats allow", cron.Schedule{Allow: []cron.Window{office}, Exclude: []cron.Window{lunch}}, "2026-11-23T12:30:00Z", false, "lunch", "2026-11-23T13:00:00Z"},
		{"until an exclusion", cron.Schedule{Allow: []cron.Window{office}, Exclude: []cron.Window{lunch}}, "2026-11-23T10:00:00Z", true, "office hours", "2026-11-23T12:00:00Z"},
		{"only exclusions", cron.Schedule{Exclude: []cron.Window{lunch}}, "2026-11-23T10:00:00Z", true, "", "2026-11-23T12:00:00Z"},
		{"no windows", cron.Schedule{}, "2026-11-23T10:00:00Z", true, "", ""},
		{"the schedule's zone", cron.Schedule{Allow: []cron.Window{office}, TimeZone: "Europe/Berlin"}, "2026-11-23T08:30:00Z", true, "office hours", "2026-11-23T16:00:00Z"},
		{"the window's zone", cron.Schedule{Allow: []cron.Window{newYork}, TimeZone: "Europe/Berlin"}, "2026-11-23T08:30:00Z", false, "", "2026-11-23T14:00:00Z"},
		{"in summer", cron.Schedule{Allow: []cron.Window{office}, TimeZone: "Europe/Berlin"}, "2026-07-06T06:59:00Z", false, "", "2026-07-06T07:00:00Z"},
		{"over midnight", cron.Schedule{Allow: []cron.Window{{Cron: "0 22 * * 5", Duration: 8 * hour}}}, "2026-11-28T05:00:00Z", true, "0 22 * * 5", "2026-11-28T06:00:00Z"},
		{"windows that meet", cron.Schedule{Allow: []cron.Window{{Cron: "0 9,10 * * *", Duration: hour}}}, "2026-11-23T09:30:00Z", true, "0 9,10 * * *", "2026-11-23T11:00:00Z"},
	} {
		c, found := one.schedule.Calendar()
		if len(found) > 0 {
			t.Fatalf("%s: %v", one.name, found)
		}
		at := instant(t, one.at)
		open, window := c.At(at)
		if open != one.open || window != one.window {
			t.Errorf("%s: found %v by %q; want %v by %q", one.name, open, window, one.open, one.window)
		}
		change, _ := c.Opens(at)
		if open {
			if !change.Equal(at) {
				t.Errorf("%s: open, and opens at %v", one.name, change)
			}
			change = c.Closes(at)
		}
		got := ""
		if !change.IsZero() {
			got = change.UTC().Format(time.RFC3339)
		}
		if got != one.change {
			t.Errorf("%s: changes at %q; want %q", one.name, got, one.change)
		}
	}
}

// TestScheduleNeverOpens (R3-27): the search for an opening ends, whatever the windows are.
func TestScheduleNeverOpens(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600
	for name, s := range map[string]cron.Schedule{
		"excluded as long as it is allowed": {
			Allow: []cron.Window{{Cron: "0 9 * * *", Duration: 3600}}, Exclude: []cron.Window{{Cron: "0 8 * * *", Duration: 3 * 3600}},
		},
		"always excluded, by the minute": {Exclude: []cron.Window{{Cron: "* * * * *", Duration: 60}}},
		"always excluded, by the month":  {Exclude: []cron.Window{{Cron: "0 0 1 * *", Duration: 31 * day}}},
	} {
		c, found := s.Calendar()
		if len(found) > 0 {
			t.Fatalf("%s: %v", name, found)
		}
		if at, opens := c.Opens(instant(t, "2028-01-01T00:00:00Z")); opens {
			t.Errorf("%s: opens at %v", name, at)
		}
	}
}

// TestScheduleRefused (R3-27): each mistake is named where it is.
func TestScheduleRefused(t *testing.T) {
	t.Parallel()
	window := func(change func(*cron.Window)) cron.Schedule {
		w := cron.Window{Cron: "0 9 * * *", Duration: 60}
		change(&w)
		return cron.Schedule{Exclude: []cron.Window{w}}
	}
	for want, s := range map[string]cron.Schedule{
		`/time_zone: found "Mars/Base"; expected an IANA time zone`:     {TimeZone: "Mars/Base"},
		`/exclude/0/time_zone: found "Local"`:                           window(func(w *cron.Window) { w.TimeZone = "Local" }),
		`/exclude/0/cron: found "0 9 * *"; expected five fields`:        window(func(w *cron.Window) { w.Cron = "0 9 * *" }),
		`/exclude/0/cron: found "0 0 30 2 *"`:                           window(func(w *cron.Window) { w.Cron = "0 0 30 2 *" }),
		`/exclude/0/duration: found 59 seconds; expected 60 to 2678400`: window(func(w *cron.Window) { w.Duration = 59 }),
		`/exclude/0/duration: found 2678401 seconds`:                    window(func(w *cron.Window) { w.Duration = 2678401 }),
		`/allow: found 41 windows; expected at most 40`:                 {Allow: make([]cron.Window, 41)},
	} {
		_, found := s.Calendar()
		if len(found) != 1 || !strings.HasPrefix(fmt.Sprintf("%s: %s", found[0].Name, found[0].Problem), want) {
			t.Errorf("found %v; want %s", found, want)
		}
	}
}
