package core

import (
	"slices"
	"time"
)

// Hold is what a rollout's journal says of its gates, and of the wish to stop there.
type Hold struct {
	// Wanted reports whether a pause was requested, and no resumption since; why is the reason given.
	Wanted bool
	Why    string
	// word is the row that asked for it.
	Word Transition
	// asking are the gates whose passage was asked for and not granted, in order.
	Asking []string
	// at are the gates that it waits at; reached those that events have reported, passed those that it may pass.
	At, Reached, Passed map[string]bool
	// Aborted reports whether an abort was requested, and no retry since.
	Aborted bool
	// TakenBack reports whether what was being deployed has been taken back since then.
	TakenBack bool
	// asked reports whether people are asked to approve something.
	asked bool
	// broken is the row that passes approvals by break-glass; nil for none.
	Broken *Transition
	// Granted are the gates that it has ever been let past, aborted or not; also the weights that it was to skip.
	Granted map[string]bool
	// Answers are those to the approvals requested since the last abort, by gate.
	Answers map[string]*Answers
	// Skips are the weights that the requests of passages say will be skipped, by gate.
	Skips map[string][]Condition
	// since is when it came to a gate, or asked to go past it, by the gate's name.
	Since map[string]time.Time
	// Stopped are the controls that the journal names for requested passages, by gate.
	Stopped map[string][]Condition
	// Bypassed are the freezes that do not stop the rollout.
	Bypassed map[int64]bool
}

// Stands reports whether it waits for a person or a condition.
func (h Hold) Stands() bool { return h.asked || len(h.At) > 0 || len(h.Asking) > 0 }

// WaitingFor is the passage that is requested and that another approval of its keeps closed: an approval at a weight that is asked at the
// entrance, or of a step that the program left out. It is empty where the approval is that of the passage itself.
func (h Hold) WaitingFor(gate string) string {
	if slices.Contains(h.Asking, gate) || len(h.Asking) == 0 {
		return ""
	}
	return h.Asking[0]
}

// HoldOf reads rows about gates and holds, oldest first. Whether people are asked is the open gates' to say: one approval
// need not be enough.
func HoldOf(rows []Transition, open []Gate) Hold {
	h := Hold{
		asked: len(open) > 0, At: map[string]bool{}, Reached: map[string]bool{}, Passed: map[string]bool{}, Since: map[string]time.Time{},
		Granted: map[string]bool{}, Answers: map[string]*Answers{}, Skips: map[string][]Condition{},
		Stopped: map[string][]Condition{}, Bypassed: map[int64]bool{},
	}
	for _, r := range rows {
		h.Read(r)
	}
	return h
}

// Read adds the next row.
func (h *Hold) Read(r Transition) {
	switch r.Verb {
	case VerbPause:
		// After an abort the pause is only its consequence, and after a request the system's row makes it effective.
		if !h.Aborted && !h.Wanted {
			h.Word = r
		}
		h.Wanted, h.Why = true, r.Reason
		h.TakenBack = h.Aborted // nobody can pause it then: the row says that its program has finished
	case VerbResume:
		h.Wanted, h.Why = false, ""
	case VerbReachGate:
		h.Reached[r.GateID], h.Since[r.GateID] = true, r.CreatedAt
		if !h.Passed[r.GateID] {
			h.At[r.GateID] = true
		}
	case VerbRequestPassage:
		h.Asking = append(without(h.Asking, r.GateID), r.GateID)
		h.Since[r.GateID], h.Skips[r.GateID] = r.CreatedAt, r.Conditions
	case VerbStopPassage:
		h.Stopped[r.GateID] = r.Conditions
	case VerbBypassFreeze:
		for _, c := range r.Conditions {
			h.Bypassed[c.ControlID] = true
		}
	case VerbPassGate:
		delete(h.Stopped, r.GateID)
		delete(h.At, r.GateID)
		h.Passed[r.GateID], h.Granted[r.GateID] = true, true
		h.Asking = without(h.Asking, r.GateID)
		for _, c := range r.Conditions {
			if c.Kind == ConditionSkippedWeight {
				h.Granted[c.GateID] = true
			}
		}
	case VerbAbort:
		// It leaves every gate, and comes to them again when it is retried.
		h.Aborted, h.TakenBack, h.Word, h.Asking = true, false, r, nil
		clear(h.At)
		clear(h.Reached)
		clear(h.Passed)
		clear(h.Answers)
		clear(h.Skips)
		clear(h.Stopped)
	case VerbRetry:
		h.Aborted, h.TakenBack = false, false
	case VerbBreakGlass:
		if r.GateID == "" && h.Broken == nil {
			h.Broken = &r
		}
		h.answered(r)
	case VerbRequestApproval:
		h.Answers[r.GateID] = &Answers{}
	case VerbApprove, VerbExpire:
		h.answered(r)
	case VerbCreate, VerbPlan, VerbStart, VerbStartJob, VerbEndJob, VerbReject, VerbComplete, VerbDegrade, VerbFail, VerbCancel,
		VerbSkip, VerbStopRollback, VerbPauseWave, VerbResumeWave:
	}
}

// answered reads an answer to an approval that was requested.
func (h *Hold) answered(r Transition) {
	if a := h.Answers[r.GateID]; a != nil {
		a.read(r)
	}
}

func without(all []string, one string) []string {
	kept := make([]string, 0, len(all))
	for _, s := range all {
		if s != one {
			kept = append(kept, s)
		}
	}
	return kept
}
