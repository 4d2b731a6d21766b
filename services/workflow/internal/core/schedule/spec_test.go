package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestDueTimes covers what is documented about changes of the clock: a schedule of certain hours has each of its times once a day, one of
// every hour follows the time that passes.
func TestDueTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec  Spec
		after string
		want  []string
	}{
		"five fields": {Spec{Cron: []string{"30 6 * * 1-5"}}, "2026-11-20T12:00:00Z", []string{"2026-11-23T06:30:00Z", "2026-11-24T06:30:00Z"}},
		"descriptor":  {Spec{Cron: []string{"@daily"}}, "2026-11-20T00:00:00Z", []string{"2026-11-21T00:00:00Z"}},
		"zone":        {Spec{Cron: []string{"0 9 * * *"}, Zone: "Asia/Kolkata"}, "2026-11-20T00:00:00Z", []string{"2026-11-20T03:30:00Z"}},
		"two expressions, each time once": {
			Spec{Cron: []string{"0 * * * *", "*/30 9 * * *"}},
			"2026-11-20T08:30:00Z",
			[]string{"2026-11-20T09:00:00Z", "2026-11-20T09:30:00Z", "2026-11-20T10:00:00Z"},
		},
		"interval": {Spec{Every: 90 * time.Second}, "2026-11-20T00:00:01Z", []string{"2026-11-20T00:01:30Z", "2026-11-20T00:03:00Z"}},
		"interval from a time to come": {
			Spec{Every: time.Hour, Anchor: time.Date(2026, 12, 1, 0, 20, 0, 0, time.UTC)},
			"2026-11-20T00:20:00Z",
			[]string{"2026-11-20T01:20:00Z", "2026-11-20T02:20:00Z"},
		},
		"@every": {Spec{Cron: []string{"@every 10m"}}, "2026-11-20T00:09:59.5Z", []string{"2026-11-20T00:10:00Z"}},
		"start and end": {
			Spec{
				Cron: []string{"@hourly"}, Start: time.Date(2026, 11, 20, 5, 0, 0, 0, time.UTC),
				End: time.Date(2026, 11, 20, 7, 0, 0, 0, time.UTC),
			},
			"2026-11-20T00:00:00Z",
			[]string{"2026-11-20T05:00:00Z", "2026-11-20T06:00:00Z", ""},
		},
		"skipped hour, when the clock has jumped": {
			Spec{Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin"},
			"2026-03-28T02:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		"several in the skipped hour, once": {
			Spec{Cron: []string{"*/20 2 * * *"}, Zone: "Europe/Berlin"},
			"2026-03-28T02:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		},
		"repeated hour, the first one": {
			Spec{Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin"},
			"2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"hourly over the skipped hour": {
			Spec{Cron: []string{"30 * * * *"}, Zone: "Europe/Berlin"},
			"2026-03-29T00:00:00Z",
			[]string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"},
		},
		"hourly over the repeated hour": {
			Spec{Cron: []string{"*/30 * * * *"}, Zone: "Europe/Berlin"},
			"2026-10-24T23:45:00Z",
			[]string{
				"2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z",
			},
		},
		"half an hour": {
			Spec{Cron: []string{"*/15 * * * *"}, Zone: "Australia/Lord_Howe"},
			"2026-04-04T14:30:00Z",
			[]string{"2026-04-04T14:45:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:15:00Z", "2026-04-04T15:30:00Z"},
		},
		"midnight that is skipped": {
			Spec{Cron: []string{"0 0 * * *"}, Zone: "Africa/Cairo"},
			"2026-04-23T12:00:00Z",
			[]string{"2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},
		},
		"29 February": {Spec{Cron: []string{"0 0 29 2 *"}}, "2026-11-20T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
	} {
		plan, err := c.spec.Plan()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		last := at(t, c.after)
		for i, want := range c.want {
			found := ""
			if last = plan.Next(last); !last.IsZero() {
				found = last.Format(time.RFC3339)
			}
			if found != want {
				t.Errorf("%s: due time %d is %q, expected %q", name, i, found, want)
			}
		}
	}
}

// TestDueTimesAscend walks over every change of the clock of a year, in zones with unusual ones: times ascend, and a daily schedule has
// each day once.
func TestDueTimesAscend(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Antarctica/Troll"} {
		for _, text := range []string{"15 1 * * *", "45 2 * * *", "0 0 * * *", "*/30 * * * *"} {
			plan, err := Spec{Cron: []string{text}, Zone: zone}.Plan()
			if err != nil {
				t.Fatal(err)
			}
			last, days := at(t, "2026-01-01T12:00:00Z"), 0
			for end := last.AddDate(1, 0, 0); last.Before(end); days++ {
				next := plan.Next(last)
				if again := plan.Next(next.Add(-time.Nanosecond)); !next.After(last) || !again.Equal(next) {
					t.Fatalf("%s in %s: after %s comes %s, and just before that %s", text, zone, last, next, again)
				}
				if text == "*/30 * * * *" && next.Sub(last) > 30*time.Minute && days > 0 {
					t.Fatalf("%s in %s: %s passes between %s and %s", text, zone, next.Sub(last), last, next)
				}
				last = next
			}
			if text != "*/30 * * * *" && days != 366 { // with the first one after the year
				t.Errorf("%s in %s: due %d times in a year, expected 366", text, zone, days)
			}
		}
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	t.Parallel()
	for want, spec := range map[string]Spec{
		"cron: missing":           {},
		"cron.0: found \"a":       {Cron: []string{"a b c d e"}},
		"cron.0: found \"0 0 0 *": {Cron: []string{"0 0 0 * * *"}},
		"cron.0: found \"0 0 31":  {Cron: []string{"0 0 31 2 *"}},
		"cron.0: found \"TZ":      {Cron: []string{"TZ=Asia/Tokyo 0 0 * * *"}},
		"cron.0: found \"@every":  {Cron: []string{"@every 1ms"}},
		"cron: found 17":          {Cron: strings.Split(strings.Repeat("@daily,", 16)+"@daily", ",")},
		"every: found 1.5s":       {Every: 1500 * time.Millisecond},
		"every: found -1s":        {Every: -time.Second},
		"time_zone: found":        {Every: time.Minute, Zone: "Mars/Olympus"},
		"jitter: found":           {Every: time.Minute, Jitter: 2 * time.Hour},
		"end: found":              {Every: time.Minute, Start: time.Unix(2e9, 0), End: time.Unix(1e9, 0)},
	} {
		_, err := spec.Plan()
		fields := fault.FieldsOf(err)
		if !fault.Is(err, fault.Invalid) || len(fields) != 1 || !strings.HasPrefix(fields[0].Name+": "+fields[0].Problem, want) {
			t.Errorf("found %v, expected a refusal that begins with %q", err, want)
		}
	}
}

// TestJitterIsSpreadAndRepeats: the same due time of the same schedule has the same delay, others have others, over all of the range.
func TestJitterIsSpreadAndRepeats(t *testing.T) {
	t.Parallel()
	plan, err := Spec{Every: time.Minute, Jitter: 10 * time.Second}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var tenths [10]int
	for schedule := range int64(100) {
		for minute := range int64(10) {
			due := time.Unix(60*minute, 0)
			d := plan.Delay(schedule, due)
			if d < 0 || d >= 10*time.Second || d != plan.Delay(schedule, due) {
				t.Fatalf("delay of %s", d)
			}
			tenths[d/time.Second]++
		}
	}
	for i, n := range tenths {
		if n < 50 || n > 150 {
			t.Errorf("%d of 1000 delays in second %d, expected about 100", n, i)
		}
	}
}
