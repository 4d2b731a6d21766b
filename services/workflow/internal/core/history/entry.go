package history

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// A run that is meant to continue for ever would have a history without end, and with it a replay without end. So a program may
// end a generation of its run by continue_with: the run continues at once, with the call that it has asked for and an empty
// history, in place of the frames of an interpreter, which cannot be stored.
//
// To everybody else it is the same run: id, handle, labels, secrets, organization, trace and attempt are its row's, which
// stays; so do its channels, with the messages that nobody has received yet, and its watches. Events are counted from
// the start of the run and consumed once in it, whatever the generation, so that one which comes at the border is neither lost
// nor had twice.
//
// The border is one commit: the entry of KindContinue, everything else of its turn, and the beginning of the next generation.
// At that moment nothing is open, because the machine lets no branch continue beside others that have not ended. Numbers of
// entries continue behind the border. Numbers of branches and operations begin anew, and so the handle in activity ids says
// which generation they are of (Handle).

// Handle is what the activity ids of a run begin with: its handle, in another attempt or generation than the first with both
// numbers behind it. Neither ever becomes less, and one of them more with each change: no two activities have one id.
func Handle(ref string, attempt, generation int) string {
	if attempt <= 1 && generation <= 1 {
		return ref
	}
	ref += "~" + strconv.Itoa(attempt)
	if generation > 1 {
		ref += "." + strconv.Itoa(generation)
	}
	return ref
}

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
	// Tries are the attempts of a Function that failed before its result; nil where the first one decided. No replay reads them.
	Tries *Tries `json:",omitempty"`
	// Generation is the one that recorded it, from 1. It is set where a history is shown; a replay has entries of one.
	Generation int `json:",omitzero"`
}

// OpRef names one operation of a generation of an execution: the branch, numbered in the order of spawning from 0, and the index of the
// operation within its branch. Both numbers come out the same at every replay, because only one branch runs at a
// time.
type OpRef struct {
	Branch, Index int
}

// Cancellation is the operation that a cancellation arrives for, where the run is to call what it has deferred. No program has it.
var Cancellation = OpRef{Branch: -1} //nolint:gochecknoglobals // a constant, if a struct could be one

// String is "branch.index".
func (r OpRef) String() string { return fmt.Sprintf("%d.%d", r.Branch, r.Index) }

// ActivityID is the idempotency key of an operation: "<execution>/<branch>.<op>". Relays, trailers of commits and the
// readers of events know activities by it (E24, E26): its form is a contract with data that lies outside of this
// service.
func ActivityID(executionRef string, op OpRef) string { return executionRef + "/" + op.String() }
