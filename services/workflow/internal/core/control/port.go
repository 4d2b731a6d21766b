package control

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// OperatorStore is what people and machines ask of the store beside what the engine needs: to find executions, to read along,
// and to interfere. Each method is one transaction.
type OperatorStore interface {
	// List reads executions, newest first, without what they wait for. Where few match, it may end before the page is full: rest is where
	// it continues (ListQuery.Before), 0 at the end of the list.
	List(ctx context.Context, q ListQuery) (list []execution.Execution, rest int64, err error)
	// Count counts executions, up to most. atLeast reports that there may be more.
	Count(ctx context.Context, q ListQuery, most int) (n int64, atLeast bool, err error)
	// Logs reads the entries of a history that a log shows, in order.
	Logs(ctx context.Context, q LogQuery) ([]history.Entry, error)
	// Statuses reads what the programs of executions report; those that report nothing are left out.
	Statuses(ctx context.Context, organization int64, executions []int64) (map[int64]map[string]string, error)
	// Reported reads what the program of an execution reports, nil for nothing, and whether that program was ever changed.
	Reported(ctx context.Context, organization, execution int64) (status map[string]string, changed bool, err error)
	// LoadAny reads everything that an execution continues with, of the present generation, also if it has ended.
	LoadAny(ctx context.Context, execution int64) (engine.Loaded, error)
	// Retries reads the retries of an execution, oldest first.
	Retries(ctx context.Context, execution int64) ([]Retry, error)
	// Terminate is ServiceStore.Cancel with another final state, and the event of a failure (D36).
	Terminate(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error)
	// Retry has a failed execution run again with its history cut before a step (see RetryRequest). fault.NotFound;
	// fault.Refused for one that has not failed; fault.Invalid when the history does not reach From.
	Retry(ctx context.Context, r RetryRequest) error
	// Reset stores an execution with the beginning of the history of one that has ended. created is false if it was reset so before.
	// fault.NotFound; fault.Refused for one that has not ended, or whose channels belong to another one; fault.Conflict if the new id
	// is taken; fault.Invalid when the history does not reach To.
	Reset(ctx context.Context, r ResetRequest) (created bool, err error)
	// ChangeProgram replaces the program of an execution; fault.Unavailable if it does not stand where it did.
	ChangeProgram(ctx context.Context, c ProgramChange) error
	// ProgramChanges reads the changes of an execution's program, oldest first.
	ProgramChanges(ctx context.Context, organization, execution int64) ([]Changed, error)
	// Progresses reads where executions stand; those that do not exist are left out.
	Progresses(ctx context.Context, executions []int64) ([]Progress, error)
}

// ListQuery says which executions are listed. All conditions hold together; a zero one is none.
type ListQuery struct {
	Organization int64
	States       []execution.State
	// Labels must all be there.
	Labels map[string]string
	// Program is the SHA-256 of the main source.
	Program []byte
	// StartedFrom and EndedFrom are inclusive, StartedTo and EndedTo are not.
	StartedFrom, StartedTo, EndedFrom, EndedTo time.Time
	// Prefix is what the id of the workflow begins with, Part what it contains.
	Prefix, Part string
	// Status has values that the run must have reported, as JSON by key.
	Status map[string]string
	// Before is the ID that all must be below: the last one of the page before.
	Before int64
	Limit  int
}

// LogQuery says which part of a log is read.
type LogQuery struct {
	Execution int64
	// Branch is the only one wanted; nil for all.
	Branch *int
	// After is the Seq that all must be above.
	After int64
	Limit int
}

// RetryRequest asks to continue a failed execution (E29).
type RetryRequest struct {
	Organization     int64
	Workflow, Reason string
	// From is the first entry to be forgotten; 0 is the step that failed: the last entry with an error, or where there is
	// none the last one that its branch had been blocked for. What lies before stays and is not done again.
	//
	// What is done from then on has other activity ids than before, because the outcome of the old ones is known to the
	// world: a relay, a forge and the readers of events would take a repeat for the attempt that failed (E24, E26).
	From int64
	At   time.Time
}

// Retry is one that was carried out.
type Retry struct {
	At            time.Time
	Reason, Error string
	// From is the first entry that was forgotten.
	From int64
}

// Progress is how far an execution has come.
type Progress struct {
	Execution int64
	State     execution.State
	LastSeq   int64
	// Turn moves with every change that LastSeq does not show.
	Turn int64
}

// Store is what callers ask of the store. Each method is one transaction.
type Store interface {
	// Create stores a new execution with its program, for its Owner if it has one. If (organization, workflow) exists,
	// nothing is stored, and the digests and handle of the existing one come back.
	Create(ctx context.Context, n engine.NewExecution) (engine.Created, error)
	// FindStart answers what Create would answer for a workflow that exists; fault.NotFound.
	FindStart(ctx context.Context, organization int64, workflow string) (engine.Created, error)
	// Get finds an execution; fault.NotFound.
	Get(ctx context.Context, organization int64, workflow string) (execution.Execution, error)
	// Waiting reads what the execution has open: timers, waits, calls.
	Waiting(ctx context.Context, execution int64) ([]Waiting, error)
	// History reads at most limit entries with a Seq above after, in order, of all generations that are kept.
	History(ctx context.Context, execution, after int64, limit int) ([]history.Entry, error)
	// Cancel ends an execution that has not ended: state, last entry, the event about it, and the removal of everything
	// it has open, in one transaction. An execution that has ended is left as it is (false).
	Cancel(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error)
	// Receive stores an event and hands it to the waits that match, in one transaction. The same (organization, source,
	// id) again is a duplicate and changes nothing. matched counts the waits satisfied now.
	Receive(ctx context.Context, e history.Event) (matched int, duplicate bool, err error)
	// Send is Receive for a message to a channel. The channel of a run that has ended, or of another organization, is
	// fault.NotFound, unless the message is a duplicate.
	Send(ctx context.Context, m history.Message) (matched int, duplicate bool, err error)
	// HasMessage reports whether the message is stored.
	HasMessage(ctx context.Context, m history.Message) (bool, error)
	// AnswerTo reads what a program has answered to a call; nil: nothing yet. open reports whether it still may.
	AnswerTo(ctx context.Context, m history.Message) (answer *history.Answer, open bool, err error)
	// Answer records the answer of a Function to the call, unless the call is gone or answered: the first answer wins.
	// A retryable error keeps the call open and puts its next attempt at retryAt.
	Answer(ctx context.Context, a agent.Answer, retryAt time.Time) error
}
