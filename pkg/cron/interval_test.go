package cron_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/cron"
)

// D64: what several schedules leave open together, within a time, and across a change of the clock.
func TestIntervalsInWhichAllAreOpen(t *testing.T) {
	t.Parallel()
	read := func(s cron.Schedule) cron.Calendar {
		c, wrong := s.Calendar()
		if len(wrong) > 0 {
			t.Fatal(wrong)
		}
		return c
	}
	office := read(cron.Schedule{
		Allow:   []cron.Window{{Cron: "0 9 * * 1-5", Duration: 8 * 3600}},
		Exclude: []cron.Window{{Cron: "0 12 * * *", Duration: 3600}}, TimeZone: "Europe/Berlin",
	})
	late := read(cron.Schedule{Allow: []cron.Window{{Cron: "0 10 * * *", Duration: 24 * 3600}}, TimeZone: "Europe/Berlin"})
	never := read(cron.Schedule{Allow: []cron.Window{{Cron: "0 3 * * 0", Duration: 60}}, TimeZone: "Europe/Berlin"})
	noWeekend := read(cron.Schedule{Exclude: []cron.Window{{Cron: "0 0 * * 6", Duration: 2 * 24 * 3600}}})
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	friday := time.Date(2027, 3, 26, 0, 0, 0, 0, berlin) // the clock changes on Sunday
	for name, one := range map[string]struct {
		all  []cron.Calendar
		days int
		most int
		want []string
	}{
		"one": {[]cron.Calendar{office}, 4, 10, []string{
			"26 08:00-26 11:00", "26 12:00-26 16:00", "29 07:00-29 10:00", "29 11:00-29 15:00",
		}},
		"two":             {[]cron.Calendar{office, late}, 1, 10, []string{"26 08:00-26 11:00", "26 12:00-26 16:00"}},
		"none in common":  {[]cron.Calendar{office, never}, 4, 10, nil},
		"only exclusions": {[]cron.Calendar{noWeekend}, 4, 10, []string{"25 23:00-27 00:00", "29 00:00-29 22:00"}},
		"at most":         {[]cron.Calendar{office}, 365, 1, []string{"26 08:00-26 11:00"}},
		"no calendar":     {nil, 1, 10, []string{"25 23:00-26 23:00"}},
	} {
		var found []string
		to := friday.AddDate(0, 0, one.days)
		intervals, known := cron.Open(t.Context(), one.all, &cron.Search{From: friday, To: to, Most: one.most, Work: 10_000})
		if known.Equal(to) != (name != "at most") {
			t.Errorf("%s: found all until %v", name, known)
		}
		for _, i := range intervals {
			found = append(found, i.Begin.UTC().Format("02 15:04")+"-"+i.End.UTC().Format("02 15:04"))
		}
		if len(found) != len(one.want) {
			t.Errorf("%s: found %q; want %q", name, found, one.want)
			continue
		}
		for i := range found {
			if found[i] != one.want[i] {
				t.Errorf("%s: found %q; want %q", name, found, one.want)
			}
		}
	}
}

// D64: however many windows schedules have, a search ends when it was enough work, and says how far it came.
func TestASearchForIntervalsIsBounded(t *testing.T) {
	t.Parallel()
	var s cron.Schedule
	for range cron.MaxWindows {
		s.Allow = append(s.Allow, cron.Window{Cron: "*/2 * * * *", Duration: 60})
		s.Exclude = append(s.Exclude, cron.Window{Cron: "0 0 1 1 *", Duration: 60})
	}
	c, wrong := s.Calendar()
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	from := time.Date(2027, 3, 26, 0, 0, 0, 0, time.UTC)
	search := cron.Search{From: from, To: from.AddDate(0, 0, 28), Most: 5000, Work: 20_000}
	found, known := cron.Open(t.Context(), []cron.Calendar{c}, &search)
	if len(found) < 2 || len(found) > 300 || known.Before(found[len(found)-1].End) || known.After(from.Add(24*time.Hour)) {
		t.Errorf("found %d intervals until %v", len(found), known)
	}
	if search.Work > 0 || search.Work < -2000 {
		t.Errorf("found %d left", search.Work)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	search.Work = 20_000
	if found, known := cron.Open(ended, []cron.Calendar{c}, &search); len(found) > 0 || !known.Equal(from) {
		t.Errorf("found %d intervals until %v for nobody", len(found), known)
	}
}
