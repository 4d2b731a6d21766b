package core

import (
	"encoding/json"
	"fmt"
	"time"
)

// NoTime is the Timeout of an operation that is only to be had if it is there at once: a Timeout of 0 is none that was given.
const NoTime = time.Nanosecond

// Kind says what an entry of a history records, or what an operation is.
type Kind string

// The kinds of operations. Run, Sleep, Wait, Receive and Poll block their branch until a Completion arrives; the others are answered
// on the spot, and only recorded. The words are stored and hashed: under another name a kind makes every history that
// holds it a Mismatch.
const (
	// KindRun is the answer of a Function.
	KindRun Kind = "run"
	// KindSleep is the end of a sleep.
	KindSleep Kind = "sleep"
	// KindWait is the event that satisfied a wait, or null for its timeout.
	KindWait Kind = "wait"
	// KindReceive is the message that a channel had, or null when there was none in time.
	KindReceive Kind = "receive"
	// KindPoll is the last observation of a poll. Where it ended with an error, there may be a value beside it.
	KindPoll Kind = "poll"
	// KindEmit is an event that left in the transaction that wrote the entry.
	KindEmit Kind = "emit"
	// KindNow is a reading of the clock.
	KindNow Kind = "now"
	// KindUUID is a unique identifier.
	KindUUID Kind = "uuid"
	// KindRandom is a number drawn by chance.
	KindRandom Kind = "random"
	// KindChannel is a channel's token.
	KindChannel Kind = "channel"
	// KindPrint is a line that the program printed.
	KindPrint Kind = "print"
	// KindContinue is the end of a generation: the call that the next one begins with. No entry of its generation follows it.
	KindContinue Kind = "continue"
)

// The kinds of the last entry of a history, one for each final state. They answer no operation. Their OpRef has
// branch -1, which no branch of a program has.
const (
	KindCompleted Kind = "completed"
	KindFailed    Kind = "failed"
	KindCancelled Kind = "cancelled"
	// KindQuarantined and KindTerminated are ends that TypeFailed tells of.
	KindQuarantined Kind = "quarantined"
	KindTerminated  Kind = "terminated"
)

// Entry is one recorded result. A history is the sequence of an execution's entries: replaying a program means running
// every branch until it blocks, then handing the entries to the operations they name, in order. What is replayed are the
// entries of the present generation (generation.go).
type Entry struct {
	// Seq counts from 1 without gaps. With the execution it is the store's primary key, and so the fence against an
	// owner that has lost its lease without noticing.
	Seq int64
	Op  OpRef
	// Kind and Name say what the operation was: run git.commit, wait com.gitlab.cd.approval.resolved.
	Kind Kind
	Name string
	// Hash is of kind, name and canonical arguments; replay compares it. It finds a program or an engine that has
	// changed, and is no defence against anybody.
	Hash uint64
	// Value is the result as JSON; nil where Error is set.
	Value json.RawMessage
	// Error is the failure of a Function, or of a wait that passed its default deadline.
	Error *FunctionError
	// Event is the row of the event or message that a wait or receive consumed; 0 for every other entry.
	Event int64
	// At is when it was recorded.
	At time.Time
	// Generation is the one that recorded it, from 1. It is set where a history is shown; a replay has entries of one.
	Generation int `json:",omitzero"`
}

// OpRef names one operation of a generation of an execution: the branch, numbered in the order of spawning from 0, and the index of the
// operation within its branch. Both numbers come out the same at every replay, because only one branch runs at a
// time.
type OpRef struct {
	Branch, Index int
}

// String is "branch.index".
func (r OpRef) String() string { return fmt.Sprintf("%d.%d", r.Branch, r.Index) }

// ActivityID is the idempotency key of an operation: "<execution>/<branch>.<op>". Relays, trailers of commits and the
// readers of events know activities by it (E24, E26): its form is a contract with data that lies outside of this
// service.
func ActivityID(executionRef string, op OpRef) string { return executionRef + "/" + op.String() }

// Activity is the operation's id: ActivityID, and for a poll that of one round, "<execution>/<branch>.<op>.<round>".
func (o Op) Activity(executionRef string) string {
	if o.Round > 0 {
		return fmt.Sprintf("%s.%d", ActivityID(executionRef, o.Ref), o.Round)
	}
	return ActivityID(executionRef, o.Ref)
}

// Op is an operation that a program has reached and that blocks its branch.
type Op struct {
	Ref  OpRef
	Kind Kind
	Name string
	Hash uint64
	// Position is where in the program: "main.star:12:5". It is for messages; replay does not compare it.
	Position string
	// Args are the canonical JSON arguments of a run: an object.
	Args json.RawMessage
	// Types and Filter are what a wait matches.
	Types  []string
	Filter Filter
	// Channels are the tokens that a receive listens to.
	Channels []string
	// Timeout bounds the operation: how long a sleep lasts, after which a wait answers None, after which a run fails
	// with code "timeout". 0 for wait and run means the configured default.
	Timeout time.Duration
	// NoRetry hands a retryable error of a Function to the program at once; else Retry says how it is tried again, nil for
	// the engine's own way.
	NoRetry bool
	Retry   *RetryPolicy
	// Interval is the pause between two rounds of a poll. Round is the one that is meant; a program leaves it 0.
	Interval time.Duration
	Round    int
}

// Completion is what unblocks an operation.
type Completion struct {
	// Event is the row of a wait's event, else 0. Of Value and Error at most one is set.
	Op    OpRef
	Value json.RawMessage
	Error *FunctionError
	Event int64
	// Round is the round of a poll that is answered.
	Round int
}

// Emit is a domain event that a program sends, or that the engine sends about an execution.
type Emit struct {
	// ID is deterministic: the activity's id, or the execution's handle with the final state.
	ID           string
	Organization int64
	// Workflow becomes the event's correlation.
	Workflow string
	Type     string
	Data     json.RawMessage
	Time     time.Time
}
