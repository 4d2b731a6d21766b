package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// ErrFenced means that another process owns the execution, or the instance's name, or that the execution has ended. Nothing was written;
// what is in memory is out of date.
var ErrFenced = errors.New("another process owns this now")

// Store keeps executions. Each method is one transaction unless it says otherwise; nothing that a method has returned
// is lost by a crash. Errors are classed by pkg/fault; ErrFenced means that another process owns the execution.
type Store interface {
	// Begin is Create for the Owner and a Commit of the first turn, in one transaction. false: nothing was stored, because the execution
	// exists, or because the turn contains something that Begin does not store; Create and Commit are then called one after the other.
	Begin(ctx context.Context, n NewExecution, first Commit) (id int64, begun bool, err error)

	// Acquire makes the instance the only owner of its name: a new epoch, and with it a claim to everything that an
	// earlier process of this name left.
	Acquire(ctx context.Context, instance string, now time.Time, length time.Duration) (epoch int64, err error)
	// Due reports work for which a signal may have been lost, and extends the lease where the round asks for it. ErrFenced: another
	// process has taken the name.
	Due(ctx context.Context, r Round) (Due, error)
	// Claim takes running executions that no live lease owns, or that this instance owns without having them in memory. If an
	// execution's former owner, another process or an earlier one of this instance, has died, that is counted as a crash of it.
	Claim(ctx context.Context, c Claim) ([]Claimed, error)
	// Hold has Claim and Due leave executions alone that the lease owns, each until a time, and returns those that they do: one that is being
	// changed just now is left out. An execution that parks or ends is held no more.
	Hold(ctx context.Context, l Lease, holdings []Holding) ([]Holding, error)
	// Absolve resets the crashes of an execution that the lease owns. A commit that parks it, or adds to its history, does so too.
	Absolve(ctx context.Context, l Lease, execution int64) error
	// Exonerate resets the crashes of executions that have at least suspicious of them, if the process before the lease, of the same
	// name, died while it ran no suspect. Executions with a live owner are left alone.
	Exonerate(ctx context.Context, l Lease, suspicious int, now time.Time) error
	// Try records which suspect the lease's process runs; 0 for none.
	Try(ctx context.Context, l Lease, execution int64) error
	// Release gives up everything that the lease owns: a process that ends in order has not crashed.
	Release(ctx context.Context, l Lease) error
	// Quarantine is Cancel with the state Quarantined, and the event of a failure (D36).
	Quarantine(ctx context.Context, organization int64, workflow, reason string, at time.Time) (bool, error)
	// Load reads everything needed to continue an execution. A *Damaged means that something is missing. Wakes and Turn are read first, so
	// that the next Commit notices whatever arrives afterwards.
	Load(ctx context.Context, execution int64) (Loaded, error)
	// Arrivals reads what has arrived for an execution since it was loaded, in order of arrival, and its state.
	Arrivals(ctx context.Context, execution int64) (Standing, []Arrival, error)
	// Commit ends a turn, and with Continue a generation. Entries (each of KindChannel opens its channel), what was opened, what was closed,
	// events in the outbox and in the table of events, the new state, and the matches between new waits and earlier events and the other way
	// round are one transaction: all or nothing. It is fenced by the turn number, the owner and the primary key of the history (ErrFenced:
	// nothing was written). Turns that are committed at the same time share a transaction; each is fenced by itself.
	Commit(ctx context.Context, c Commit) (Committed, error)

	// EndOf answers the event about the end of a workflow, with its result, as programs see it; nil if it has not ended.
	EndOf(ctx context.Context, organization int64, workflow string) (json.RawMessage, error)
	// CancelOrphans cancels at most limit children whose parents have ended, and reports how many.
	CancelOrphans(ctx context.Context, now time.Time, limit int) (int, error)

	// FireTimers marks at most limit timers that are due and wakes their executions. next is the earliest timer that is
	// not due yet; zero if there is none.
	FireTimers(ctx context.Context, now time.Time, limit int) (fired int, next time.Time, err error)
	// Forget deletes events older than before that executions can no longer match, and the entries of generations that ended
	// before then. Channels that such a generation has made stay known.
	Forget(ctx context.Context, before time.Time) error
}

// NewExecution is what Create stores.
type NewExecution struct {
	execution.Start
	Ref string
	// Digest is that of the main source.
	Digest [32]byte
	At     time.Time
	// Owner owns the execution from its first moment, so that it needs no claim; nil: it has to be claimed.
	Owner *Lease
}

// Created is what a Create led to.
type Created struct {
	// ID is the execution's, new or found.
	ID  int64
	Ref string
	// Created is false when the execution existed; Existing are then its digests.
	Created  bool
	Existing execution.Digests
}

// Woken is an execution that can continue. Turn is its present one: memory of another turn is out of date.
type Woken struct {
	ID, Turn int64
	// Organization is whose it is, where Ours.
	Organization int64
	// Ours is set if this process's instance owns it.
	Ours bool
	// Wakeup is why it was woken, where that is known and a single arrival; nil: the arrivals have to be read.
	Wakeup *Wakeup
}

// Wakeup is an arrival with the counter of arrivals (Loaded.Wakes) after it. A process that has read everything up to the arrival
// before is up to date with it.
type Wakeup struct {
	Wakes   int64
	Arrival Arrival
}

// Round is a look for work for which no signal was received.
type Round struct {
	Lease Lease
	// Until is how far the lease is extended; zero: not now.
	Until time.Time
	Now   time.Time
	// Soon is before when a timer counts as due in this round: the next look is not earlier.
	Soon time.Time
	// Here are the executions that the process has.
	Here []int64
}

// Due is what a round has found.
type Due struct {
	// Executions is set if Claim would take one, suspected or not; Timers if one ends before the round's Soon.
	Executions, Timers bool
	// Calls is set if NextCalls would take one, Flows if NextFlowWork would.
	Calls, Flows bool
	// Orphans is set if CancelOrphans would cancel some.
	Orphans bool
}

// Claim says what a process would take on.
type Claim struct {
	Lease Lease
	Now   time.Time
	// Here are the executions that the process has.
	Here  []int64
	Limit int
	// Suspicious is the number of crashes from which on an execution is suspected of causing them. With Suspected those are claimed,
	// without it the others.
	Suspicious int
	Suspected  bool
}

// Claimed is an execution that was claimed, with its name and how many crashes are counted for it.
type Claimed struct {
	Woken

	Organization int64
	Workflow     string
	Crashes      int
}

// Standing is the state of an execution in the store.
type Standing struct {
	State execution.State
	Wakes int64
}

// Lease is the ownership of an instance. A new process of the same name has the next epoch, which distinguishes it from the one before.
type Lease struct {
	Instance string
	Epoch    int64
}

// Loaded is an execution as an owner needs it.
type Loaded struct {
	execution.Execution
	Program program.Program
	Inputs  []byte
	Secrets map[string]string
	// History is that of the present generation, and Continuation what it began with (Environment).
	History      []history.Entry
	Continuation json.RawMessage
	// HeldUntil is from when on the present generation may run, zero for at once, and Before when the one began that decides about the next
	// one (pace.go); zero: none does.
	HeldUntil, Before time.Time
	// Turn is incremented when the owner or the state changes, Wakes on every arrival. A turn that appends history and keeps running does
	// not increment Turn. A commit names both: another Turn refuses it, other Wakes keep it from parking.
	Turn, Wakes int64
	// Open are the deadlines of blocked operations, which a restart must not prolong. Arrived is what arrived for
	// them while no process had the execution in memory.
	Open []Opened
	// Polls are how far open polls have come.
	Polls   []Polling
	Arrived []Arrival
}

// Opened is what the store holds about an open operation.
type Opened struct {
	Op       history.OpRef
	Deadline time.Time
}

// ArrivalKind says what has arrived. The numbers are stored (delivery.kind); that of timers is only in the query that
// reads arrivals.
type ArrivalKind int

const (
	// EventArrived is a wait's event.
	EventArrived ArrivalKind = iota
	// AnswerArrived is a Function's answer.
	AnswerArrived
	// TimerArrived is the end of a sleep, or of the timeout of a wait or a run.
	TimerArrived
)

// Arrival is a result for an open operation.
type Arrival struct {
	Op    history.OpRef
	Kind  ArrivalKind
	Value json.RawMessage
	Error *history.FunctionError
	Event int64
	// Tries are the attempts at a call that failed before its answer.
	Tries *history.Tries
}

// Opening registers an operation that blocks.
type Opening struct {
	Op history.Op
	// Due is when the sleep ends, or the wait or run has lasted long enough.
	Due time.Time
	// Location and Agent say where a run or a round of a poll is carried out. Request identifies a call that is held.
	Location activity.Location
	Agent    int64
	Request  string
	// Room is where a call has its worker already; nil: it is offered to all.
	Room *activity.Room
	// Poll is set for a poll. What the store held of it before is closed by the same commit.
	Poll *Polling
}

// Commit is one turn of an execution.
type Commit struct {
	Lease     Lease
	Execution execution.Execution
	// Turn and Wakes are as last read.
	Turn, Wakes int64
	// LastSeq is the end of the history with Entries.
	LastSeq int64
	Entries []history.Entry
	Emits   []history.Emit
	Open    []Opening
	// Closed are the operations that Entries complete. The store may never have known one: a Function that does not
	// exist, for instance, is refused before it is opened.
	Closed []history.OpRef
	// Bare is set if the store has nothing open for the execution, so that its end need not look for any.
	Bare bool
	// Next is Running to keep the execution, Parked to give it up until something arrives, or final.
	Next  execution.State
	Error string
	// Stack is where the program has failed, for those who wait in this process; the last entry has it as well.
	Stack []history.Frame
	At    time.Time
	// Continue ends the generation: the next one begins with this call behind LastSeq. Nothing is open then, and Next is Running.
	Continue json.RawMessage
	// HeldUntil is from when on the next generation may run; zero: at once.
	HeldUntil time.Time
	// Starts are children that are stored with the turn, unless they exist, and Family is set if the run has some that end with it.
	Starts []ChildStart
	Family bool
	// Consumed are kinds of events of which the generation has consumed some; with Continue the store remembers up to which event.
	Consumed []history.Want
}

// ChildStart is a child that a run starts.
type ChildStart struct {
	NewExecution
	// Detached children do not end with their parent.
	Detached bool
}

// Committed is what a Commit led to.
type Committed struct {
	Turn int64
	// State is Running where Parked was asked for and something had arrived meanwhile, or a new wait matched an earlier event.
	State execution.State
}
