package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
)

// KnownToFlow is what a flow definition is checked against.
type KnownToFlow struct {
	// Stored means that the definition was accepted earlier: names that have become reserved since are accepted.
	Stored bool
	// Steps are the types of steps that every driver of the pipeline supports, and StepsIn those that the drivers of its environments do.
	Steps        []string
	StepsIn      map[string][]string
	Environments []string
	// ValidateConfig checks the configuration of the deploy step to an environment.
	ValidateConfig func(environment string, config json.RawMessage) error
	// CheckRules finds what keeps everybody from answering an approval, as JSON pointers into it; nil accepts all.
	CheckRules func(Approval) []fault.Field
	// ValidateCheck checks the configuration of a check whose kind is a bundle.
	ValidateCheck func(kind, target string, config json.RawMessage) error
}

// Flow is a pipeline, as far as the domain has to understand it.
type Flow struct {
	// Check checks it, as it was read, against what is known. The error is Invalid, its fields JSON pointers into the definition.
	Check func(known KnownToFlow) error
	// Deploys are the deploy steps, in order.
	Deploys []DeployStep
	// Approvals are the steps that only ask people, in order.
	Approvals []ApprovalStep
	// Steps are all of them, in order.
	Steps []FlowStep
	// Deadline is that of a whole rollout, and Rollback that of a rollback; nil for none.
	Deadline, RollbackDeadline *DeadlineRule
	// Work is how long a rollout may be at work in an environment without a deadline; 0 for any time. WorkGiven reports whether the
	// pipeline says so.
	Work      time.Duration
	WorkGiven bool
	// Rules decide which rollouts stop at the weights.
	Rules planner.Rules
	// Runbook reports whether it deploys nothing: its jobs enter their environments themselves.
	Runbook bool
	// Inputs returns the inputs of a new rollout: the given ones with defaults. The error is Invalid, its fields JSON pointers that begin
	// with /inputs. KeepInputs returns those of one that goes back, which are as they were recorded.
	Inputs, KeepInputs func(json.RawMessage) (json.RawMessage, error)
	// Unweighted is a definition without its weights, as the programs of a quick sync see it.
	Unweighted func(definition json.RawMessage) (json.RawMessage, error)
	// Skip is a definition without what is left out because of what is new, and one sentence for each (R4-26); nil if nothing ever is.
	Skip func(definition json.RawMessage, n News) (left json.RawMessage, skipped []string, err error)
	// Keep is the definition with some of its steps only, true for those that stay. The gates that are left keep their identifiers.
	Keep func(kept []bool) (json.RawMessage, error)
}

// News is what is new in a rollout, as far as it is known and counts.
type News struct {
	// Messages are those of all new commits, and Files all that were changed; empty if not all are known.
	Messages, Files []string
}

// DeployStep brings the application to one environment.
type DeployStep struct {
	// At is where the step is in the definition, a JSON pointer.
	At          string
	Environment string
	Approval    *Approval
	Gates       []FlowGate
	// Active and Proposed are the checks of the environment, merged with those of the whole pipeline.
	CheckSet
	// Follows are the environments of earlier steps whose active checks guard the entrance of this one; nil for the one before it.
	Follows []string
	// Deadline is how long the rollout may stay in the environment; nil for any time.
	Deadline *DeadlineRule
	// Given is how long the pipeline itself lets the driver and jobs work there, beyond their defaults.
	Given time.Duration
	// Config is the driver's; opaque.
	Config json.RawMessage
	// Jobs are those that run in the environment beside what the step deploys; nil in a runbook.
	Jobs []FlowJob
	// Namespaces are those of the jobs of a runbook in the environment, in which the step only runs jobs; nil for a step that deploys.
	Namespaces []string
}

// RunsJobs reports whether the step deploys nothing.
func (s DeployStep) RunsJobs() bool { return len(s.Namespaces) > 0 }

// FlowJob is a job of an environment that is deployed to.
type FlowJob struct {
	// At is where it is in the definition, a JSON pointer.
	At string
	// Namespace is empty for the one that the application is deployed to.
	Namespace string
}

// FlowGate is a weight at which every service stops. It is part of the inputs of the deploy program.
type FlowGate struct {
	Weight       int       `json:"weight"`
	SoakDuration int       `json:"soak_duration"`
	Approval     *Approval `json:"approval"`
}

// Approval asks people to agree. It is part of the inputs of the deploy program, which needs of it the reason and the time;
// who may answer is the domain's.
type Approval struct {
	Reason              string `json:"reason"`
	Quorum              int    `json:"quorum,omitempty"`
	Group               string `json:"group,omitempty"`
	RequesterMayApprove *bool  `json:"requester_may_approve,omitempty"`
	// ExpiresAfter is in seconds; 0 for never.
	ExpiresAfter int    `json:"expires_after,omitempty"`
	OnExpiry     string `json:"on_expiry,omitempty"`
}

// ApprovalStep is a step of a pipeline that only asks.
type ApprovalStep struct {
	GateID string
	// Step is which of the pipeline's steps it is, counted from 0.
	Step int
	// Before is the environment of the next deploy step; empty after the last.
	Before string
	Approval
}

// FlowStep is one step of a pipeline, as far as it matters where it stands.
type FlowStep struct {
	// Environment is that of a deploy step, and of a job of a runbook; empty for any other.
	Environment string
	// Asks reports whether people have to agree.
	Asks bool
}

// DeadlineAction is what happens to a rollout whose deadline has passed.
type DeadlineAction string

// The actions. Only an abort before a cancellation cancels.
const (
	DeadlineFails   DeadlineAction = "fail"
	DeadlineAborts  DeadlineAction = "abort"
	DeadlineCancels DeadlineAction = "cancel"
)

// DeadlineRule is how long something may take (D59).
type DeadlineRule struct {
	After  time.Duration
	Action DeadlineAction
	// CountsWaiting reports whether time counts during which the rollout waits for people.
	CountsWaiting bool
	// AtWork reports whether only time counts in which the rollout is at work in the environment: it is the default of R4-25.
	AtWork bool
}

// MaxDeadline is the longest.
const MaxDeadline = 30 * 24 * time.Hour

// DeadlineKind is what a deadline is about.
type DeadlineKind string

// The kinds.
const (
	DeadlineOfRollout     DeadlineKind = "rollout"
	DeadlineOfEnvironment DeadlineKind = "environment"
	// DeadlineOfAbort is how long an abort may take after which the rollout ends.
	DeadlineOfAbort DeadlineKind = "abort"
)

// The outcomes of deadlines; empty while one is open.
const (
	DeadlineMet       = "met"
	DeadlineFailed    = "failed"
	DeadlineAborted   = "aborted"
	DeadlineCancelled = "cancelled"
	DeadlineWithdrawn = "withdrawn"
)

// Deadline is one that a rollout has pinned.
type Deadline struct {
	ID, RolloutID int64
	Kind          DeadlineKind
	// EnvironmentID and Environment are those of one of an environment.
	EnvironmentID int64
	Environment   string
	DeadlineRule
	// By asked for what happens then; of type system where the pipeline does. Reason is why.
	By     Principal
	Reason string
	// Away is for how long of that nobody looked at deadlines, as the service was stopped; it is known of those that are at work.
	Away time.Duration
	// StartedAt is since when it runs; nil before. Due is when it is looked at; nil for not as things are.
	StartedAt, Due *time.Time
	Outcome        string
}

// Left is how much time is left at an instant, and whether it stands still because the rollout waits for people.
// Weights are those of the environment: at a weight a rollout is held until it has soaked, and longer only for a passage.
func (d Deadline) Left(
	rows []Transition, rules map[string]PinnedGate, weights []Weight, at time.Time,
) (left time.Duration, still bool) {
	if d.StartedAt == nil {
		return d.After, true
	}
	left = d.After - at.Sub(*d.StartedAt)
	if d.CountsWaiting || d.Kind == DeadlineOfAbort {
		return left, false
	}
	if d.AtWork {
		waited, still := d.heldAtWork(rows, weights, at)
		return left + waited + d.Away, still
	}
	waited, still := Waited(rows, rules, *d.StartedAt, at)
	return left + waited, still
}

// heldAtWork is how long the rollout was not at work in the environment until an instant, and whether it is not at that instant.
func (d Deadline) heldAtWork(rows []Transition, weights []Weight, at time.Time) (waited time.Duration, still bool) {
	return held(rows, func(h Hold) (bool, time.Time) { return h.holdsIn(d.Environment, weights) }, *d.StartedAt, at)
}

// Soaks is when the deadline is to be looked at that stands still because the rollout soaks at a weight: nothing else happens at the end of
// the time; nil if it stands still for something else.
func (d Deadline) Soaks(rows []Transition, weights []Weight, at time.Time) *time.Time {
	if !d.AtWork || d.StartedAt == nil {
		return nil
	}
	h := HoldOf(rows, nil)
	if _, until := h.holdsIn(d.Environment, weights); until.After(at) {
		return &until
	}
	return nil
}

// holdsIn reports whether the rollout waits at a weight in an environment, or for a passage there, and until when; zero for any time. Where
// others wait, it does not.
func (h Hold) holdsIn(environment string, weights []Weight) (holds bool, until time.Time) {
	inside := func(gate string) bool { return strings.HasPrefix(gate, environment+"/") }
	if slices.ContainsFunc(h.Asking, inside) {
		return true, time.Time{}
	}
	for gate := range h.At {
		if !inside(gate) {
			continue
		}
		end := h.Since[gate]
		for _, w := range weights {
			if gate == fmt.Sprintf("%s/%d", environment, w.Weight) {
				end = end.Add(time.Duration(w.SoakSeconds) * time.Second)
			}
		}
		if holds = true; end.After(until) {
			until = end
		}
	}
	return holds, until
}

// Words is the time, and which time counts where that has to be shown.
func (r DeadlineRule) Words() string {
	if r.AtWork {
		return r.After.String() + " at work"
	}
	return r.After.String()
}

// What is what the deadline is of, for people.
func (d Deadline) What() string {
	switch d.Kind {
	case DeadlineOfEnvironment:
		return fmt.Sprintf("environment %q", d.Environment)
	case DeadlineOfAbort:
		return "the abort"
	case DeadlineOfRollout:
	}
	return "the rollout"
}

// Waited is how long a rollout waited for people between two instants, and whether it still does: for an approval, while it is paused or
// aborted, and while a freeze, a pin, a veto or a policy stops it. Rows are those about gates and holds, oldest first.
func Waited(rows []Transition, rules map[string]PinnedGate, from, to time.Time) (waited time.Duration, still bool) {
	return held(rows, func(h Hold) (bool, time.Time) { return h.waitsForPeople(rules), time.Time{} }, from, to)
}

// held is how long something held a rollout between two instants, and whether it still does. What holds says until when it does without
// another row; zero for any time. A pause and an abort always hold.
func held(rows []Transition, holds func(Hold) (bool, time.Time), from, to time.Time) (waited time.Duration, still bool) {
	h, since, until := HoldOf(nil, nil), from, time.Time{}
	paused := false
	add := func(at time.Time) {
		if end := earlier(at, until); still {
			waited += between(since, end, from)
		}
	}
	for _, r := range rows {
		h.Read(r)
		at := earlier(r.CreatedAt, to) // it may be by the clock of another replica
		switch r.Verb {
		case VerbPause, VerbResume:
			paused = RolloutState(r.To) == RolloutPaused
		default: // no other row pauses
		}
		add(at)
		still, until = holds(h)
		if since = at; paused || h.Aborted {
			still, until = true, time.Time{}
		}
	}
	add(to)
	return waited, still && (until.IsZero() || until.After(to))
}

// earlier is the first of two instants; the first one if there is no second.
func earlier(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// between is the time from one instant to another that is not before a third.
func between(since, until, from time.Time) time.Duration {
	if since.Before(from) {
		since = from
	}
	return max(0, until.Sub(since))
}

// waitsForPeople reports whether an approval is open, or a control stops a passage.
func (h Hold) waitsForPeople(rules map[string]PinnedGate) bool {
	for gate, answers := range h.Answers {
		if _, given := answers.Satisfies(gate, rules[gate].GateRule); !given && answers.Closed == nil && !h.Granted[gate] {
			return true
		}
	}
	return len(h.Stopped) > 0
}
