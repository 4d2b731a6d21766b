package program

import (
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Environment is what a running program can reach apart from blocking operations.
type Environment struct {
	// Ref is the execution's handle, as its activities' ids begin with it.
	Ref string
	// Workflow is the run's id.
	Workflow string
	// Organization is whose run it is: programs that share something take turns by it.
	Organization int64
	// Continuation is the call that the program begins with in place of main: the Value of the entry of KindContinue that ended
	// the generation before; nil in the first one.
	Continuation json.RawMessage
	// Begun is set if the run was under way before, also where its history is empty.
	Begun bool
	// Now, UUID and Random answer the programs' now(), uuid() and random(); they are asked once, and their answers
	// recorded. Random is at least 0 and below 1.
	Now    func() time.Time
	UUID   func() string
	Random func() float64
	// Opaque reports arguments that are not those which were recorded, because something in the history was concealed: they are not compared.
	// nil: none are.
	Opaque func(args []byte) bool
	// Token makes the token of a channel, which nobody can guess.
	Token func() string
	// Asked, if set, receives each operation that the program reaches during the replay of its history, and those that it is blocked on at
	// its end.
	Asked func(Asked)
	// Emit checks a domain event that the program sends. A nil error means that it will leave with the entry that
	// records it.
	Emit func(id, eventType string, data json.RawMessage) *history.FunctionError
	// Start admits a child with so many bytes of inputs; nil: all are. Bounded reports whether Start has to be asked at all; it is asked
	// before what moves the program on. nil: it has to.
	Start   func(bytes int) *history.FunctionError
	Bounded func() bool
}

// Asks reports whether children have to be admitted.
func (e Environment) Asks() bool { return e.Start != nil && (e.Bounded == nil || e.Bounded()) }

// A Machine is one program being run. It holds goroutines until Close. None of its methods may be called while another one is running, not
// even Stop or Close: what a program computes between two waits is bounded by the limit of its steps, so each method returns by itself.
// Several machines may be used at the same time, each by one goroutine.
//
// Its order of events is a pure function of program, inputs and history: only one branch runs at a time, branches run in
// the order in which they became able to, and nothing but a Completion makes a blocked branch able to run.
type Machine interface {
	// Replay starts the program and hands it the history. Afterwards it stands where it stood when the last entry was
	// recorded. An error is a *Mismatch, or the failure of the program itself, which Outcome reports as well.
	Replay(history []history.Entry) error
	// Pending are the operations that branches are blocked on, by branch and index.
	Pending() []history.Op
	// Complete unblocks an operation and runs until every branch blocks again. An operation that is not pending is left
	// alone and answers false.
	Complete(c history.Completion) bool
	// Stop ends the run from outside: what it waits for is no longer pending, and what it has deferred is called, which may take
	// time. Its Outcome is then the cause. false: the run has ended, or is ending, for another reason.
	Stop(cause Stopped) bool
	// Ending reports whether the program has ended and what it has deferred is being called. Operations may then cease to be pending
	// without a completion.
	Ending() bool
	// Result is what the main of a child returned, when it has ended well; nil for nothing.
	Result() json.RawMessage
	// Take are the entries and events since the last Take, in order; entries carry no Seq and no time yet. An entry of
	// KindContinue is the last: the program has ended well, and continues in another Machine.
	Take() ([]history.Entry, []history.Emit)
	// Outcome reports whether the program has ended, and its failure if it failed. *Interrupted is not a failure of the
	// program: discard this machine and continue in another.
	Outcome() (ended bool, failure error)
	// Close gives the machine up, wherever it stands.
	Close()
}

// Mismatch is a replay that asks for something else than the history holds: the program is not the one that was
// recorded, or the engine changed under it. It stops the run and is never guessed around (D34).
type Mismatch struct {
	// Seq is the entry that did not fit, Position the line of the program that disagrees, Call the operation.
	Seq      int64
	Position string
	Call     history.OpRef
	// Differs says what: recorded and found.
	Differs string
}

// Error names line, call and difference.
func (m *Mismatch) Error() string {
	at := m.Position
	if at == "" {
		at = "the program"
	}
	return "program and history differ at " + at + ", call " + m.Call.String() + " of branch and index: " + m.Differs
}

// Stopped is the end of a run that was stopped from outside, as its Outcome.
type Stopped struct {
	// Cancelled is set if a caller has cancelled it; else it has failed.
	Cancelled bool
	// Reason is the caller's, or what the run has failed with.
	Reason string
}

// Error is the reason.
func (s *Stopped) Error() string { return s.Reason }

// Interrupted is the end of a Machine that says nothing about its program: what carried it is gone. The run stands where
// the store has it, and is replayed.
type Interrupted struct {
	// Reason is for the log.
	Reason string
	// Moved is set if nothing went wrong: others needed the room.
	Moved bool
}

// Error states that nothing is lost.
func (e *Interrupted) Error() string { return "the run was interrupted and is resumed: " + e.Reason }
