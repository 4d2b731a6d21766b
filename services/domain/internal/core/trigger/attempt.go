package trigger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
)

// take takes from the run of an edit what came of it, and returns when it is looked at again: at once if it has ended.
func take(e *core.TriggerEdit, run handoff.WorkflowRun, now, later time.Time) time.Time {
	reported := map[string]string{}
	for _, p := range run.Status {
		var value string
		if json.Unmarshal([]byte(p.Value), &value) == nil {
			reported[p.Key] = value
		}
	}
	switch run.State {
	case handoff.WorkflowRunning:
		return later
	case handoff.WorkflowParked:
		e.Why = core.Because("its run is parked", run.Error)
		return now.Add(editLease)
	case handoff.WorkflowCompleted:
		states := map[string]core.EditState{
			"committed": core.EditCommitted, "proposed": core.EditProposed, "unchanged": core.EditUnchanged, "refused": core.EditFailed,
		}
		if state, known := states[reported["outcome"]]; known {
			e.State, e.Commit, e.Link, e.Why = state, reported["commit"], reported["link"], reported["why"]
			return now
		}
		if reported["outcome"] == "withdrawn" {
			e.State, e.Why = core.EditFailed, e.Refused
			return now
		}
		e.Why = cmp.Or(reported["why"], "its run ended without saying what came of it")
	default:
		e.Why = cmp.Or(core.Because("its run is "+string(run.State), run.Error), "its run is not known")
	}
	e.Attempt++
	code := reported["code"]
	if code == "late" {
		return late(e, reported["at"], now)
	}
	failed := e.Attempt - e.Late
	most := maxEdits
	if e.Last != "" {
		most += maxLooks
	}
	if failed >= most {
		return giveUp(e, fmt.Sprintf("%s; it was tried %d times", e.Why, failed), now)
	}
	if code == "unreachable" || code == "timeout" { // codes of Functions: there was no answer
		return now.Add(firstAwayPause << (2 * min(failed-1, 3)))
	}
	return now.Add(firstEditPause << min(failed-1, 3))
}

// giveUp ends an edit permanently, once one more run has searched for the commit of an earlier one, which may have been made; a proposal is
// found by its branch. It returns when that is decided about.
func giveUp(e *core.TriggerEdit, why string, now time.Time) time.Time {
	if e.NotAfter == nil || e.Last != "" {
		if e.State, e.Why = core.EditFailed, why; e.Last != "" {
			e.Why = e.Last + "; whether it has committed is not known: " + why
		}
		return now
	}
	e.Last = "the files could not be edited: " + why
	return now.Add(firstEditPause)
}

// late is what comes of a run that began too late to commit. It is no failure: it is asked again, for a day.
func late(e *core.TriggerEdit, at string, now time.Time) time.Time {
	e.Late++
	if seconds, err := strconv.ParseInt(at, 10, 64); err == nil && e.NotAfter != nil {
		e.Why = fmt.Sprintf("it would have committed at %s, and may until %s: it is asked again whether a rollout would be refused",
			stamp(time.Unix(seconds, 0)), stamp(*e.NotAfter))
	}
	if e.FirstBegun != nil && now.Sub(*e.FirstBegun) > maxLate || e.Late >= mostLate {
		e.Why += fmt.Sprintf("; that was so %d times, so that the engine is slow or its clock another one", e.Late)
		if mayHavePushed(*e) {
			return giveUp(e, e.Why, now)
		}
		e.State = core.EditFailed
		return now
	}
	return now.Add(min(firstEditPause<<min(e.Late-1, 6), longestLatePause))
}
