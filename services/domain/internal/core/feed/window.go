package feed

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/cron"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// ahead is how far a calendar of windows looks.
	ahead = 28 * 24 * time.Hour
	// maxPipelines and maxEnvironments are how many are looked at, and maxWindows how many windows a calendar has.
	maxPipelines    = 200
	maxEnvironments = 500
	maxWindows      = 500
)

// Flows reads pipelines, and what environments require by themselves.
type Flows interface {
	Read(definition json.RawMessage) (core.Flow, error)
	ReadChecks(own json.RawMessage) (core.CheckSet, error)
}

// Pipeline is the newest of an application.
type Pipeline struct {
	ApplicationID int64
	Application   string
	Definition    json.RawMessage
	// ChangedAt is when it was saved.
	ChangedAt time.Time
}

// OwnChecks are what an environment requires by itself.
type OwnChecks struct {
	Environment string
	Checks      json.RawMessage
	ChangedAt   time.Time
}

// scheduled are the schedules that have to be open for an application to enter an environment.
type scheduled struct {
	application              int64
	name, environment        string
	calendars                []cron.Calendar
	unreadable, hasSchedules bool
	changedAt                time.Time
}

// opening is a time in which something may enter an environment.
type opening struct {
	scheduled
	cron.Interval
}

// windows are when the schedules of pipelines and environments let something pass, the next first. What cannot be read lets nothing pass.
func (u *UseCases) windows(ctx context.Context, tx Tx, now time.Time) (all []opening, err error) {
	pipelines, err := tx.ScheduledPipelines(ctx, maxPipelines)
	if err != nil {
		return nil, err
	}
	environments, err := tx.ScheduledEnvironments(ctx, maxEnvironments)
	if err != nil {
		return nil, err
	}
	own := map[string]OwnChecks{}
	for _, e := range environments {
		own[e.Environment] = e
	}
	from := now.UTC().Truncate(24 * time.Hour) // a window that is open has the same beginning all day
	for _, s := range u.scheduled(pipelines, own) {
		if s.unreadable || !s.hasSchedules {
			continue
		}
		for _, i := range cron.Open(s.calendars, from, now.Add(ahead+cron.MaxWindow), maxWindows) {
			if i.End.After(now) && i.Begin.Before(now.Add(ahead)) {
				all = append(all, opening{s, i})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b opening) int {
		return cmp.Or(a.Begin.Compare(b.Begin), strings.Compare(a.name, b.name), strings.Compare(a.environment, b.environment))
	})
	return all[:min(len(all), maxWindows)], nil
}

// scheduled reads the schedules of pipelines, with those of the environments that they enter.
func (u *UseCases) scheduled(pipelines []Pipeline, own map[string]OwnChecks) (all []scheduled) {
	for _, p := range pipelines {
		f, err := u.flows.Read(p.Definition)
		if err != nil { // of another release
			continue
		}
		for _, step := range f.Deploys {
			s := scheduled{application: p.ApplicationID, name: p.Application, environment: step.Environment, changedAt: p.ChangedAt}
			s.add(step.Proposed)
			if e, has := own[step.Environment]; has {
				set, err := u.flows.ReadChecks(e.Checks)
				s.unreadable = s.unreadable || err != nil
				s.add(set.Proposed)
				if e.ChangedAt.After(s.changedAt) {
					s.changedAt = e.ChangedAt
				}
			}
			all = append(all, s)
		}
	}
	return all
}

// add takes up the schedules of checks.
func (s *scheduled) add(checks []core.Check) {
	for _, c := range checks {
		if c.Kind != core.CheckSchedule {
			continue
		}
		s.hasSchedules = true
		if c.Schedule == nil {
			s.unreadable = true
			continue
		}
		calendar, wrong := c.Schedule.Calendar()
		s.unreadable = s.unreadable || len(wrong) > 0
		s.calendars = append(s.calendars, calendar)
	}
}

// windowCalendar writes windows as iCalendar (RFC 5545).
func (u *UseCases) windowCalendar(organization int64, all []opening) []byte {
	var b strings.Builder
	line(&b, "BEGIN:VCALENDAR")
	line(&b, "VERSION:2.0")
	line(&b, "PRODID:-//Lockstep//Windows//EN")
	line(&b, "CALSCALE:GREGORIAN")
	line(&b, "METHOD:PUBLISH")
	line(&b, "X-WR-CALNAME:Windows")
	for _, w := range all {
		line(&b, "BEGIN:VEVENT")
		line(&b, fmt.Sprintf("UID:window-%d-%s-%d.organization-%d@%s", w.application, hexadecimal(w.environment), w.Begin.Unix(), organization, u.authority()))
		line(&b, "DTSTAMP:"+stamp(w.changedAt))
		line(&b, "DTSTART:"+stamp(w.Begin))
		line(&b, "DTEND:"+stamp(w.End))
		line(&b, "SUMMARY:"+text(w.name+" may enter "+w.environment))
		line(&b, "STATUS:CONFIRMED")
		line(&b, "TRANSP:TRANSPARENT")
		line(&b, "END:VEVENT")
	}
	line(&b, "END:VCALENDAR")
	return []byte(b.String())
}

// hexadecimal writes the name of an environment so that it may be a part of an identifier.
func hexadecimal(name string) string { return hex.EncodeToString(digest(name)[:8]) }
