package handoff

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// TimelineQuery is which part of a timeline is asked for.
type TimelineQuery struct {
	// First is how many operations that have ended, the newest ones, and Before the first history entry that is not part of it; 0 for the end.
	First  int
	Before int64
	// Inputs says whether arguments are wanted.
	Inputs bool
}

// WorkflowTimeline is what a run did, branch by branch.
type WorkflowTimeline struct {
	Branches []WorkflowBranch
	// Steps are in the order in which they ended; those that are open come last.
	Steps []WorkflowStep
	// Earlier is set if there are steps before these, Gap why beginnings and inputs are missing from some step on, Inputs if the viewer
	// sees inputs.
	Earlier bool
	Gap     string
	Inputs  bool
}

// WorkflowBranch is a branch of the program.
type WorkflowBranch struct {
	// Parent is the branch that has spawned it; -1 for none.
	Branch, Parent int
	BeganAt        time.Time
	EndedAt        *time.Time
}

// WorkflowStep is an operation of a branch.
type WorkflowStep struct {
	// Sequence is the history entry that it ended with; 0 for one that is open.
	Sequence             int64
	Branch               int
	Kind, Name, Position string
	BeganAt              time.Time
	EndedAt, Until       *time.Time
	// Input and Output are JSON, cut where InputTruncated and OutputTruncated say so.
	Input, Output                   string
	InputTruncated, OutputTruncated bool
	// Code is of one that failed, Child the run that it started, Attempt how often an open call was sent.
	Code, Child string
	Attempt     int
	// RetriesCount is how many attempts failed before the one that decided, or so far, and Retries are these; of many the first and the last.
	RetriesCount int
	Retries      []CallRetry
}

// CallRetry is an attempt at a Function that failed, and after which there was another one.
type CallRetry struct {
	Number  int
	BeganAt *time.Time
	EndedAt time.Time
	Code    string
	Message string
	NextAt  *time.Time
}

// WorkflowTimeline is what a run did. The arguments of its calls are for those who may interfere with runs; results are in the history,
// which every reader sees.
func (u *UseCases) WorkflowTimeline(ctx context.Context, a core.Actor, id string, first int, before int64) (WorkflowTimeline, error) {
	return u.workflows.WorkflowTimeline(ctx, a.Organization, id, TimelineQuery{
		First: first, Before: before, Inputs: a.May(core.ActionRetryWorkflow) == nil,
	})
}
