package schedule

import (
	"fmt"
	"slices"
	"time"
)

// The times after which a schedule is looked at again.
const (
	// retryStart is for runs whose start was decided: it is done again if the process that does it has died.
	retryStart = 5 * time.Second
	// watchRuns is for due times that wait for a run to end.
	watchRuns = time.Second
)

const (
	// maxDue bounds the due times of one turn. What is left comes in the next one, behind other schedules.
	maxDue = 100
	// maxCounted bounds how many missed times are counted one by one.
	maxCounted = 1000
)

// Turn is what one look at a schedule leads to. It is stored in one transaction; runs are started and cancelled after that.
type Turn struct {
	// NextDue is that of the schedule from now on, LastDue the last due time that was dealt with; zero if there is none.
	NextDue, LastDue time.Time
	// Fires are new, or have changed.
	Fires []Fire
	// Start are those of Fires whose runs are to be started.
	Start []Fire
	// Cancel are the ids of runs that are to be cancelled.
	Cancel []string
	// Skipped and Missed are to be added to the schedule's counters.
	Skipped, Missed int64
	// Again is when the schedule is to be looked at again, and Settled the same if all of Start are started; zero: never.
	Again, Settled time.Time
}

// turn decides what happens to due times. open are the fires in the states Waiting, Starting and Started, by due time.
//
// It decides by what is stored and by now, so a turn whose transaction was lost is taken again with the same result, and two processes that
// look at once exclude each other by the schedule's row.
func (s Schedule) turn(plan Plan, open []Fire, now time.Time) Turn {
	t := Turn{NextDue: s.NextDue}
	var underWay []Fire
	var waiting []Fire
	for _, f := range open {
		switch {
		case f.State == Waiting:
			waiting = append(waiting, f)
		case f.Exists && f.Run.Ended(), f.State == Started && !f.Exists: // or forgotten
			f.State = Done
			t.Fires = append(t.Fires, f)
		default:
			underWay = append(underWay, f)
			if f.State == Starting { // by a process that has died, or is slow
				t.Start = append(t.Start, f)
			}
		}
	}
	var more bool
	if !s.Paused {
		var due []Fire
		due, more = t.due(s, plan, now)
		due = slices.DeleteFunc(due, func(d Fire) bool { // triggered or backfilled
			return slices.ContainsFunc(open, func(f Fire) bool { return f.Due.Equal(d.Due) })
		})
		waiting = append(waiting, due...)
	}
	slices.SortStableFunc(waiting, func(a, b Fire) int { return a.Due.Compare(b.Due) })
	kept := t.decide(s, waiting, underWay)
	if !s.Paused && !t.NextDue.IsZero() {
		t.Settled = t.NextDue.Add(plan.Delay(s.ID, t.NextDue))
		if more {
			t.Settled = now
		}
	}
	if kept {
		t.Settled = earliest(t.Settled, now.Add(watchRuns))
	}
	t.Again = t.Settled
	if len(t.Start) > 0 || len(t.Cancel) > 0 {
		t.Again = earliest(t.Again, now.Add(retryStart))
	}
	return t
}

// due takes the due times that have come. more reports that there are others.
func (t *Turn) due(s Schedule, plan Plan, now time.Time) (due []Fire, more bool) {
	missed := Fire{State: Missed}
	for d := s.NextDue; ; d = plan.Next(d) {
		t.NextDue = d
		if d.IsZero() {
			break
		}
		at := d.Add(plan.Delay(s.ID, d))
		if at.After(now) {
			break
		}
		if now.Sub(at) > s.CatchUp {
			if missed.Count == 0 {
				missed.Due = d
			}
			if missed.Count++; missed.Count == maxCounted {
				d = latest(d, now.Add(-s.CatchUp-s.Spec.Jitter-time.Second))
			}
			t.LastDue = d
			continue
		}
		if len(due) == maxDue {
			more = true
			break
		}
		t.LastDue = d
		due = append(due, Fire{Due: d, State: Waiting, Count: 1, Workflow: s.RunID(d)})
	}
	if missed.Count > 0 {
		missed.Detail = fmt.Sprintf("%d due times up to %s were more than %s ago", missed.Count, t.LastDue.UTC().Format(time.RFC3339), s.CatchUp)
		if missed.Count >= maxCounted {
			missed.Detail = "at least " + missed.Detail
		}
		if missed.Count == 1 {
			missed.Detail = fmt.Sprintf("the due time was more than %s ago", s.CatchUp)
		}
		t.Fires, t.Missed = append(t.Fires, missed), missed.Count
	}
	return due, more
}

// decide applies the policies to due times in their order. kept reports that some wait for a run to end.
func (t *Turn) decide(s Schedule, waiting, underWay []Fire) (kept bool) {
	buffered := 0
	skip := func(f Fire, format string, args ...any) {
		f.State, f.Detail = Skipped, fmt.Sprintf(format, args...)
		t.Fires, t.Skipped = append(t.Fires, f), t.Skipped+1
	}
	keep := func(f Fire) {
		if kept = true; !f.Backfill {
			buffered++
		}
		if f.Detail == "" {
			f.State, f.Detail = Waiting, "waits for the end of a run that is under way"
			t.Fires = append(t.Fires, f)
		}
	}
	for i, f := range waiting {
		policy := s.Overlap
		if f.Overlap != "" {
			policy = f.Overlap
		}
		switch {
		case s.Paused && !f.Backfill:
			continue // it stays as it is
		case policy == CancelOther && i+1 < len(waiting):
			skip(f, "%s is due, too", waiting[i+1].Workflow)
		case policy == Allow || len(underWay) == 0:
			f.State, f.Detail = Starting, ""
			t.Fires, t.Start = append(t.Fires, f), append(t.Start, f)
			underWay = append(underWay, f)
		case policy == CancelOther:
			for _, other := range underWay {
				if other.Exists {
					t.Cancel = append(t.Cancel, other.Workflow)
				}
			}
			keep(f)
		case policy == BufferOne && buffered == 0, policy == BufferAll && (f.Backfill || buffered < MaxBuffered):
			keep(f)
		case policy == Skip:
			skip(f, "%s is under way", underWay[0].Workflow)
		default:
			skip(f, "%s is under way, and as many due times wait for its end as may: %d", underWay[0].Workflow, buffered)
		}
	}
	return kept
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
