package cron_test

import (
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
		for _, i := range cron.Open(one.all, friday, friday.AddDate(0, 0, one.days), one.most) {
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
