package view

import (
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Lead time is split by who was waited for. People were waited for until a rollout of the version set was requested, after a failed
// attempt until it was requested again, while a gate was open, and while a rollout was paused, be it by hand or after an abort.
// Everything else is the machine's: what was deployed, soak times, and the line behind another rollout of the application.

// span is from an instant to another.
type span struct{ begin, end time.Time }

// waitedFor is how long people were waited for until a delivery was over, of the time since its version set was made, going by the attempts
// of that set. What overlaps counts once.
func waitedFor(one landing, ofSet []*Attempt, words map[int64][]core.Transition) time.Duration {
	var waits []span
	idle := one.of.MadeAt
	for _, a := range ofSet {
		if a.RolloutID > one.of.RolloutID {
			break
		}
		waits = append(waits, span{idle, a.AskedAt})
		idle = one.FinishedAt
		if a.RolloutID != one.of.RolloutID && a.OverAt != nil {
			idle = *a.OverAt
		}
		waits = append(waits, held(words[a.RolloutID], idle)...)
	}
	return union(waits, span{one.of.MadeAt, one.FinishedAt})
}

// held are the times at which a rollout waited for people, going by its journal, until an end.
func held(words []core.Transition, end time.Time) []span {
	var waits []span
	// Open are the gates by what is known of them: until when is that of the latest answer, since of several who have to agree the last
	// one counts; zero before there is one.
	open, paused := map[string]span{}, time.Time{}
	closeGate := func(gate string, at time.Time) {
		s := open[gate]
		if s.end.IsZero() {
			s.end = at
		}
		waits = append(waits, s)
		delete(open, gate)
	}
	for _, t := range words {
		s, asked := open[t.GateID]
		switch t.Verb { //nolint:exhaustive // the others are about no gate
		case core.VerbRequestApproval:
			if asked && !s.end.IsZero() { // answered, and asked again by a retry
				closeGate(t.GateID, s.end)
				asked = false
			}
			if !asked {
				open[t.GateID] = span{begin: t.CreatedAt}
			}
		case core.VerbApprove, core.VerbReject, core.VerbExpire, core.VerbBreakGlass:
			if asked {
				open[t.GateID] = span{s.begin, t.CreatedAt}
			}
		case core.VerbAbort: // closes every gate
			for gate := range open {
				closeGate(gate, t.CreatedAt)
			}
		}
		if isPaused := t.To == core.State(core.RolloutPaused); isPaused && paused.IsZero() {
			paused = t.CreatedAt
		} else if !isPaused && !paused.IsZero() {
			waits, paused = append(waits, span{paused, t.CreatedAt}), time.Time{}
		}
	}
	if !paused.IsZero() {
		waits = append(waits, span{paused, end})
	}
	for gate := range open {
		closeGate(gate, end)
	}
	return waits
}

// union is how long spans last together, within one.
func union(all []span, within span) time.Duration {
	slices.SortFunc(all, func(a, b span) int { return a.begin.Compare(b.begin) })
	total, until := time.Duration(0), within.begin
	for _, s := range all {
		if s.begin.Before(until) {
			s.begin = until
		}
		if s.end.After(within.end) {
			s.end = within.end
		}
		if s.end.After(s.begin) {
			total += s.end.Sub(s.begin)
			until = s.end
		}
	}
	return total
}
