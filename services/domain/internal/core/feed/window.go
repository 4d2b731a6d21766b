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
	// maxWork is how much work the searches for one calendar are, about the days of schedules that are looked at.
	maxWork = 400_000
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
	application       int64
	name, environment string
	schedules         []cron.Schedule
	calendars         []cron.Calendar
	unreadable        bool
	changedAt         time.Time
}

// opening is a time in which something may enter an environment; with unlisted, one from which on nothing is listed of that, and without an
// application, of anything.
type opening struct {
	scheduled
	cron.Interval

	unlisted bool
}

// sources are what windows are made of.
type sources struct {
	pipelines    []Pipeline
	environments []OwnChecks
}

// readSources reads one more of each than is looked at, so that it is seen where there are more.
func readSources(ctx context.Context, tx Tx) (s sources, err error) {
	if s.pipelines, err = tx.ScheduledPipelines(ctx, maxPipelines+1); err != nil {
		return s, err
	}
	s.environments, err = tx.ScheduledEnvironments(ctx, maxEnvironments+1)
	return s, err
}

// searched is what was found for schedules.
type searched struct {
	found []cron.Interval
	known time.Time
}

// windows are when the schedules of pipelines and environments let something pass, the next first. What cannot be read lets nothing pass.
// All searches together are so much work, of which each has an equal share of what is left; what is the same is searched once.
func (u *UseCases) windows(ctx context.Context, s sources, now time.Time) (all []opening, err error) {
	from := now.UTC().Truncate(24 * time.Hour) // a window that is open has the same beginning all day
	missing := len(s.pipelines) > maxPipelines || len(s.environments) > maxEnvironments
	steps, sets := u.scheduled(ctx, s), map[string]searched{}
	keys := make([]string, len(steps))
	for i, step := range steps {
		key, err := json.Marshal(step.schedules)
		if err != nil {
			return nil, fmt.Errorf("write schedules: %w", err)
		}
		keys[i], sets[string(key)] = string(key), searched{}
	}
	left, waiting, known := maxWork, len(sets), cron.Known{}
	clear(sets)
	for i, step := range steps {
		set, done := sets[keys[i]]
		if !done {
			search := cron.Search{From: from, To: now.Add(ahead + cron.MaxWindow), Most: maxWindows, Work: left / waiting, Known: known}
			left -= search.Work
			set.found, set.known = cron.Open(ctx, step.calendars, &search)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			left, waiting = max(0, left+search.Work), waiting-1
			sets[keys[i]] = set
		}
		for _, found := range set.found {
			if found.End.After(now) && found.Begin.Before(now.Add(ahead)) {
				all = append(all, opening{step, found, false})
			}
		}
		if set.known.Before(now.Add(ahead)) {
			all = append(all, opening{step, cron.Interval{Begin: set.known, End: set.known.Add(time.Hour)}, true})
		}
	}
	slices.SortStableFunc(all, func(a, b opening) int {
		return cmp.Or(a.Begin.Compare(b.Begin), strings.Compare(a.name, b.name), strings.Compare(a.environment, b.environment))
	})
	if missing {
		all = slices.Insert(all, 0, opening{scheduled{changedAt: from}, cron.Interval{Begin: from, End: from.Add(24 * time.Hour)}, true})
	}
	if len(all) > maxWindows {
		end := all[maxWindows].Begin
		all = append(all[:maxWindows], opening{scheduled{changedAt: from}, cron.Interval{Begin: end, End: end.Add(time.Hour)}, true})
	}
	return all, ctx.Err()
}

// scheduled reads the schedules of pipelines, with those of the environments that they enter, of what has any that can be read.
func (u *UseCases) scheduled(ctx context.Context, from sources) (all []scheduled) {
	own := map[string]OwnChecks{}
	for _, e := range from.environments[:min(len(from.environments), maxEnvironments)] {
		own[e.Environment] = e
	}
	for _, p := range from.pipelines[:min(len(from.pipelines), maxPipelines)] {
		if ctx.Err() != nil { // nobody waits for it
			return nil
		}
		f, err := u.flows.Read(p.Definition)
		if err != nil { // of another release
			continue
		}
		for _, step := range f.Deploys {
			s := scheduled{application: p.ApplicationID, name: p.Application, environment: step.Environment, changedAt: p.ChangedAt}
			s.add(step.Proposed)
			e, has := own[step.Environment]
			// Where there are more of them than were read, one that was not may have schedules.
			s.unreadable = s.unreadable || !has && len(from.environments) > maxEnvironments
			if has {
				set, err := u.flows.ReadChecks(e.Checks)
				s.unreadable = s.unreadable || err != nil
				s.add(set.Proposed)
				if e.ChangedAt.After(s.changedAt) {
					s.changedAt = e.ChangedAt
				}
			}
			if !s.unreadable && len(s.schedules) > 0 {
				all = append(all, s)
			}
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
		if c.Schedule == nil {
			s.unreadable = true
			continue
		}
		calendar, wrong := c.Schedule.Calendar()
		s.unreadable = s.unreadable || len(wrong) > 0
		s.schedules, s.calendars = append(s.schedules, *c.Schedule), append(s.calendars, calendar)
	}
}

// writeWindows reads in a transaction what windows are made of, and makes them after it.
func (u *UseCases) writeWindows(ctx context.Context, organization int64, now time.Time) (Document, error) {
	var from sources
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
		from, err = readSources(ctx, tx)
		return err
	})
	if err != nil {
		return Document{}, err
	}
	all, err := u.windows(ctx, from, now)
	if err != nil {
		return Document{}, err
	}
	return document(u.windowCalendar(organization, all), "text/calendar; charset=utf-8"), nil
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
		kind, summary := "window", w.name+" may enter "+w.environment
		if w.unlisted {
			kind, summary = "unlisted", w.name+": windows to enter "+w.environment+" are listed until here"
		}
		if w.unlisted && w.name == "" {
			summary = "Not all windows are listed from here on"
		}
		line(&b, fmt.Sprintf("UID:%s-%d-%s-%d.organization-%d@%s", kind, w.application, hexadecimal(w.environment), w.Begin.Unix(), organization, u.authority()))
		line(&b, "DTSTAMP:"+stamp(w.changedAt))
		line(&b, "DTSTART:"+stamp(w.Begin))
		line(&b, "DTEND:"+stamp(w.End))
		line(&b, "SUMMARY:"+text(summary))
		line(&b, "STATUS:CONFIRMED")
		line(&b, "TRANSP:TRANSPARENT")
		line(&b, "END:VEVENT")
	}
	line(&b, "END:VCALENDAR")
	return []byte(b.String())
}

// hexadecimal writes the name of an environment so that it may be a part of an identifier.
func hexadecimal(name string) string { return hex.EncodeToString(digest(name)[:8]) }
