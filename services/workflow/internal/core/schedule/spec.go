package schedule

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/cron"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Spec says when a schedule is due: at the times of any of its cron expressions, or every interval.
type Spec struct {
	// Cron are expressions of five fields (minute, hour, day of the month, month, day of the week), or @hourly, @daily, @weekly, @monthly,
	// @yearly, or @every and a duration, which counts like Every.
	Cron []string `json:"cron,omitempty"`
	// Every is an interval of whole seconds, counted from Anchor; zero for none.
	Every time.Duration `json:"every,omitempty"`
	// Anchor is a time from which intervals are counted, in both directions; zero is the beginning of 1970.
	Anchor time.Time `json:"anchor,omitzero"`
	// Zone is an IANA name, in which cron expressions are read; empty is UTC.
	Zone string `json:"zone,omitempty"`
	// Start and End bound the due times: not before Start, and before End; zero for no bound.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Jitter delays each start by a duration below it, which is always the same for the same schedule and due time.
	Jitter time.Duration `json:"jitter,omitempty"`
}

// The bounds of a Spec.
const (
	maxCron   = 16
	minEvery  = time.Second
	maxEvery  = 366 * 24 * time.Hour
	maxJitter = time.Hour
)

// Plan is a Spec that was checked, and computes due times.
type Plan struct {
	spec     Spec
	location *time.Location
	walls    []cron.Expression
	every    []time.Duration
}

// Plan checks a Spec. The error is fault.Invalid and names the fields.
func (s Spec) Plan() (Plan, error) {
	p := Plan{spec: s, location: time.UTC}
	var fields []fault.Field
	report := func(name, format string, args ...any) {
		fields = append(fields, fault.Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	if s.Zone != "" {
		location, err := time.LoadLocation(s.Zone)
		if err != nil || s.Zone == "Local" {
			report("time_zone", "found %.80q, expected an IANA time zone such as Europe/Berlin, or UTC", s.Zone)
		} else {
			p.location = location
		}
	}
	if len(s.Cron) == 0 && s.Every == 0 {
		report("cron", "missing, expected at least one expression, or `every`")
	}
	if len(s.Cron) > maxCron {
		report("cron", "found %d expressions, expected at most %d", len(s.Cron), maxCron)
	}
	for i, text := range s.Cron[:min(len(s.Cron), maxCron)] {
		if err := p.add(text); err != nil {
			report(fmt.Sprintf("cron.%d", i), "found %.80q, expected five fields, @hourly, @daily, @weekly, @monthly, @yearly or @every DURATION: %v",
				text, err)
		}
	}
	if s.Every != 0 {
		if err := checkEvery(s.Every); err != nil {
			report("every", "%v", err)
		} else {
			p.every = append(p.every, s.Every)
		}
	}
	if s.Jitter < 0 || s.Jitter > maxJitter {
		report("jitter", "found %s, expected 0 to %s", s.Jitter, maxJitter)
	}
	if !s.Start.IsZero() && !s.End.IsZero() && !s.Start.Before(s.End) {
		report("end", "found %s, expected a time after the start, %s", s.End.UTC().Format(time.RFC3339), s.Start.UTC().Format(time.RFC3339))
	}
	for name, at := range map[string]time.Time{"start": s.Start, "end": s.End, "anchor": s.Anchor} {
		if !at.IsZero() && (at.Year() < 1970 || at.Year() > 2200) {
			report(name, "found the year %d, expected 1970 to 2200", at.Year())
		}
	}
	if len(fields) > 0 {
		return Plan{}, fault.InvalidFields(fields...)
	}
	return p, nil
}

func checkEvery(d time.Duration) error {
	if d < minEvery || d > maxEvery || d%time.Second != 0 {
		return fault.New(fault.Invalid, "found %s, expected whole seconds from %s to %s", d, minEvery, maxEvery)
	}
	return nil
}

// add parses an expression.
func (p *Plan) add(text string) error {
	if every, is := strings.CutPrefix(text, "@every "); is {
		d, err := time.ParseDuration(strings.TrimSpace(every))
		if err != nil {
			return fmt.Errorf("duration: %w", err)
		}
		if err := checkEvery(d); err != nil {
			return err
		}
		p.every = append(p.every, d)
		return nil
	}
	parsed, err := cron.Parse(text)
	if err != nil {
		return fmt.Errorf("expression: %w", err)
	}
	p.walls = append(p.walls, parsed)
	return nil
}

// Next is the first due time after t; zero if there is none.
func (p Plan) Next(t time.Time) time.Time {
	if !p.spec.Start.IsZero() && t.Before(p.spec.Start) {
		t = p.spec.Start.Add(-time.Nanosecond)
	}
	var next time.Time
	offer := func(due time.Time) {
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	for _, d := range p.every {
		offer(nextOfInterval(p.spec.Anchor, d, t))
	}
	for _, w := range p.walls {
		offer(w.Next(t, p.location))
	}
	if !p.spec.End.IsZero() && !next.Before(p.spec.End) {
		return time.Time{}
	}
	return next.UTC()
}

// nextOfInterval is the first multiple of d from the anchor after t, in whole seconds.
func nextOfInterval(anchor time.Time, d time.Duration, t time.Time) time.Time {
	var origin int64
	if !anchor.IsZero() {
		origin = anchor.Unix()
	}
	step := int64(d / time.Second)
	n := (t.Unix() - origin) / step
	if (t.Unix()-origin)%step < 0 {
		n--
	}
	return time.Unix(origin+(n+1)*step, 0)
}

// Delay is how long after its due time a run of a schedule starts.
func (p Plan) Delay(schedule int64, due time.Time) time.Duration {
	if p.spec.Jitter <= 0 {
		return 0
	}
	h := fnv.New64a()
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(schedule))
	binary.BigEndian.PutUint64(b[8:], uint64(due.Unix()))
	_, _ = h.Write(b[:]) // a hash does not fail
	sum := h.Sum64()
	sum ^= sum >> 33 // the last bytes of the due time reach the low bits only
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return time.Duration(sum % uint64(p.spec.Jitter)).Truncate(time.Millisecond)
}
