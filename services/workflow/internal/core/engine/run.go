package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/callpolicy"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/wake"
)

// run takes one execution from turn to turn for as long as it has work in this process, and stays in memory in between while there is
// room. It belongs to one goroutine at a time; the Functions that it starts report to it through results only.
type run struct {
	engine  *Engine
	woken   wake.Signal
	loaded  Loaded
	machine program.Machine
	// seq is the last entry of the history, entries and emits what the present turn adds. weight is the size of all
	// recorded values, in bytes.
	seq     int64
	entries []history.Entry
	emits   []history.Emit
	// reports are the last ones to the domain service about answers, by what they are about.
	reports map[string]json.RawMessage
	weight  int64
	// closed are the operations that the present turn completes and that the store knows.
	closed []history.OpRef
	// open are the operations that branches are blocked on.
	open map[history.OpRef]openOp
	// touched is set once the store may hold something open for the execution.
	touched bool
	// wakeup is why a parked run was woken, until it is taken.
	wakeup *Wakeup
	// running are the Functions under way in this process. results receives their results, one at a time; answered has those of pure
	// Functions, which are called at once.
	running  map[history.OpRef]context.CancelFunc
	results  chan history.Completion
	answered []history.Completion
	// over is set if the generation has ended and another one begun; warned if the log knows how long the history is; ahead if
	// the first turn was run and stored with the start, and its Functions are still to be called.
	over, warned, ahead bool
	// hasStatus is set if the program has reported a status since this process has the run.
	hasStatus bool
	// source is the program of a run that may start children, starts what the present turn starts, and family is set if there are some
	// that end with the run. broken is why the turn cannot be stored.
	source program.Program
	starts []ChildStart
	family bool
	broken error
	// claimed are children of the present turn that count as open already (allow.go).
	claimed int
	// unchecked is why the present turn is repeated: an event could not be checked.
	unchecked *program.Interrupted
	// consumed are the kinds of events of which this generation has consumed some, by their names.
	consumed map[string]history.Want
	// about is what policies about calls may ask of the run, permitted are the calls that they permit after an approval, and denials counts
	// those that they deny, tries those that only policies which are tried out would not permit, and sampled the Functions of which a call
	// that all permit was reported (permit.go).
	about     *callpolicy.Run
	permitted map[history.OpRef][]string
	denials   int
	tries     int
	sampled   map[string]bool
	// refused are the failed attempts before results that the present turn has taken (failures).
	refused map[history.OpRef]*history.Tries
}

// openOp is what is known of a blocked operation.
type openOp struct {
	deadline time.Time
	// since is when this process saw it first, stored whether the store knows of it.
	since  time.Time
	stored bool
	// poll is how far a poll has come.
	poll *Polling
	// hold is set while the call waits for an approval.
	hold *hold
}

// drive continues an execution until it parks, ends, is taken away or ctx ends. parked is set if the run is in the
// cache now, or gone because there was no room, and has given up its place: it is parked, or rests.
func (e *Engine) drive(ctx context.Context, j job, woken wake.Signal) (parked bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := e.places.unpark(j)
	switch {
	case j.run != nil:
		r = j.run
	case r != nil:
		r.wakeup = j.wakeup
	default:
		if r, err = e.loadRun(ctx, j); err != nil {
			return false, err
		}
	}
	r.woken = woken
	defer func() {
		// A panic would come again at every claim, so it ends the run. This is deferred after stop and so runs before it:
		// fail needs a ctx that has not ended.
		if thrown := recover(); thrown != nil {
			e.Log.ErrorContext(ctx, "turn panicked", "execution", j.id, "panic", thrown, "stack", string(debug.Stack()))
			err = r.fail(ctx, fmt.Errorf("internal error: %v", thrown))
		}
		if !parked { // else another goroutine may have it already
			r.settle()
			if r.machine != nil {
				r.machine.Close()
			}
		}
	}()
	for {
		if rest := r.rests(j); rest != nil {
			e.rest(r, *rest)
			return true, nil
		}
		j.cancelled = false
		state, rest, err := r.run(ctx)
		if err == nil && r.over {
			rest = r.between()
		}
		if err == nil && rest != nil {
			e.rest(r, *rest)
			return true, nil
		}
		if err == nil && r.over {
			following, err := r.next(ctx)
			if err != nil {
				return false, err
			}
			r = following
			continue
		}
		if err != nil || state != execution.Parked {
			return false, err
		}
		if e.places.park(r, woken) {
			return true, nil
		}
	}
}

// newRun is a run that has done nothing in this process yet.
func (e *Engine) newRun(l Loaded) *run {
	r := &run{engine: e, loaded: l, open: map[history.OpRef]openOp{}}
	r.needing()
	return r
}

// loadRun makes one of what the job has, or else of what is stored.
func (e *Engine) loadRun(ctx context.Context, j job) (*run, error) {
	if j.started != nil {
		return e.newRun(*j.started), nil
	}
	r := e.newRun(Loaded{})
	loaded, err := e.Store.Load(ctx, j.id)
	if err != nil {
		return nil, err
	}
	r.loaded, r.seq, r.touched = loaded, loaded.Base+int64(len(loaded.History)), true
	r.needing()
	for _, o := range loaded.Open {
		r.open[o.Op] = openOp{deadline: o.Deadline, since: e.Clock.Now(), stored: true}
	}
	for _, p := range loaded.Polls {
		known := r.open[p.Op]
		known.poll = &p
		r.open[p.Op] = known
	}
	r.decisions()
	return r, nil
}

// run repeats the turn, up to the end of the generation: apply what arrived, commit, wait. A run that is new begins with the replay of
// the history, also of an empty one, which starts the program; one that was parked only looks, unless the wake-up carried what has arrived.
func (r *run) run(ctx context.Context) (execution.State, *resting, error) {
	arrived, state, err := r.begin(ctx)
	if err != nil || state != execution.Running {
		return state, nil, err
	}
	for {
		r.apply(arrived)
		state, err := r.commit(ctx)
		if fault.Is(err, fault.Invalid) {
			return execution.Failed, nil, r.drop(ctx, err)
		}
		if err != nil || state != execution.Running || r.over {
			return state, nil, err
		}
		if rest := r.between(); rest != nil {
			return state, rest, nil
		}
		if arrived, err = r.await(ctx); err != nil {
			return execution.Running, nil, err
		}
	}
}

// begin brings a run up to date with its execution, and returns what has arrived. With any state but Running there is nothing to
// continue.
func (r *run) begin(ctx context.Context) (arrived []Arrival, state execution.State, err error) {
	switch {
	case r.machine == nil:
		if failed, err := r.replay(ctx); failed || err != nil {
			return nil, execution.Failed, err
		}
		arrived, r.loaded.Arrived = r.loaded.Arrived, nil
		return arrived, execution.Running, nil
	case r.ahead:
		r.ahead = false
		return nil, execution.Running, nil
	}
	if arrival, all := r.fromWakeup(); all {
		return []Arrival{arrival}, execution.Running, nil
	}
	standing, arrived, err := r.look(ctx)
	return arrived, standing, err
}

// openProgram makes the machine of a run.
func (r *run) openProgram() (program.Machine, error) {
	e := r.engine
	return e.Scripts.Open(r.loaded.Program, r.loaded.Inputs, program.Environment{
		Ref:          r.loaded.Ref,
		Workflow:     r.loaded.Workflow,
		Organization: r.loaded.Organization,
		Continuation: r.loaded.Continuation,
		Begun:        len(r.loaded.Open) > 0,
		Now:          e.Clock.Now,
		UUID:         e.newRef,
		Random:       e.Random,
		Token:        history.NewToken,
		Emit: func(id, eventType string, data json.RawMessage) *history.FunctionError {
			refusal := e.CheckEmit(r.emit(history.Emit{ID: id, Type: eventType, Data: data}))
			if refusal != nil && refusal.Code == history.CodeUnreachable {
				r.unchecked = &program.Interrupted{Reason: refusal.Message}
			}
			if refusal == nil {
				refusal = r.admitEmit(len(data))
			}
			return refusal
		},
		Bounded: func() bool { return e.Limits.Bounded(r.loaded.Organization) },
		Start:   r.admitChild,
	})
}

// replay brings the program to where the history ends. failed is set if the run has been ended, because it cannot.
func (r *run) replay(ctx context.Context) (failed bool, err error) {
	machine, err := r.openProgram()
	if _, interrupted := errors.AsType[*program.Interrupted](err); interrupted {
		return false, err
	}
	if err != nil {
		return true, r.fail(ctx, err)
	}
	r.machine = machine
	if err := machine.Replay(r.loaded.History); err != nil {
		// A failure of the program is for Outcome: the first commit ends the run with the entries that led to it.
		if _, isMismatch := errors.AsType[*program.Mismatch](err); isMismatch {
			return true, r.fail(ctx, err)
		}
	}
	for _, entry := range r.loaded.History {
		r.weight += int64(len(entry.Value))
		r.family = r.family || entry.Kind == history.KindStart // also where all of them are detached, which changes nothing
	}
	r.keepSource()
	// The machine has them, in its own form.
	r.loaded.History, r.loaded.Program, r.loaded.Inputs, r.loaded.Continuation = nil, program.Program{}, nil, nil
	return false, nil
}

// keepSource keeps what children are started with, where there may be some.
func (r *run) keepSource() {
	r.family = r.family || isParent(r.loaded.Continuation)
	if startsChildren(r.loaded.Program) {
		r.source = r.loaded.Program
	}
}

// The sizes from which the memory of a parked run is guessed, in bytes: what every run has, what every blocked branch
// has (a coroutine's stack), and how much larger values are in a program than in JSON.
const (
	runSize     = 16 << 10
	branchSize  = 12 << 10
	valueGrowth = 4
	entrySize   = 64
)

// size is a guess at the memory that a parked run takes.
func (r *run) size() int64 {
	return runSize + branchSize*int64(len(r.open)) + valueGrowth*r.weight + entrySize*(r.seq-r.loaded.Base)
}

func (r *run) pending(ref history.OpRef) (history.Op, bool) {
	for _, op := range r.machine.Pending() {
		if op.Ref == ref {
			return op, true
		}
	}
	return history.Op{}, false
}

// apply completes operations with what has arrived. Of several arrivals for one operation the first in the store's
// order wins, which puts events and answers before timers.
func (r *run) apply(arrived []Arrival) {
	for _, a := range arrived {
		if a.Op == history.Cancellation {
			r.cancelled(a)
			continue
		}
		op, pending := r.pending(a.Op)
		// An earlier arrival has completed the operation: a wait may time out after its event has arrived.
		if !pending {
			continue
		}
		if known := r.open[a.Op]; known.hold != nil {
			r.held(a, known)
			continue
		}
		c := history.Completion{Op: a.Op, Value: a.Value, Error: a.Error, Event: a.Event, Tries: a.Tries}
		if known := r.open[a.Op]; known.poll != nil {
			// The store drops the answers of earlier rounds: they are to calls that are closed.
			if c.Round = known.poll.Round; a.Kind == TimerArrived {
				r.pollTime(op, known)
			} else {
				r.observe(op, known, c)
			}
			continue
		}
		if a.Kind == TimerArrived {
			c = expired(op, r.limit(op))
			if op.Kind == history.KindRun {
				c.Tries = r.engine.Tries(op.Activity(r.loaded.Ref))
			}
		}
		if c.Event > 0 {
			r.note(op)
		}
		r.complete(c)
	}
}

// complete hands the result of a Function to the program, or to the poll that asked for it.
func (r *run) complete(c history.Completion) {
	if known := r.open[c.Op]; known.poll != nil && c.Round > 0 {
		if op, pending := r.pending(c.Op); pending {
			r.observe(op, known, c)
		}
		return
	}
	r.finish(c)
}

// finish hands a completion to the program, which runs on until it blocks.
func (r *run) finish(c history.Completion) {
	report, call, reported := r.reporting(c)
	if r.machine.Complete(c) {
		if reported {
			r.reportAnswer(report, call)
		}
		r.failures(c.Op, c.Tries)
		r.forget(c.Op)
	}
}

// forget drops what is known of an operation that is over. A Function that is still under way, because its timer
// was faster, is cancelled.
func (r *run) forget(ref history.OpRef) {
	if r.open[ref].stored {
		r.closed = append(r.closed, ref)
	}
	delete(r.open, ref)
	if cancel, ok := r.running[ref]; ok {
		cancel()
		delete(r.running, ref)
	}
}

// expired is what the end of its time means to an operation. A sleep is over, and a wait with a timeout of its own
// answers None. All else is an error (D12).
func expired(op history.Op, limit time.Duration) history.Completion {
	c := history.Completion{Op: op.Ref, Value: json.RawMessage("null")}
	switch {
	case op.Kind == history.KindRun:
		c.Value = nil
		c.Error = &history.FunctionError{Code: history.CodeTimeout, Message: fmt.Sprintf("%s was not answered within %s", op.Name, limit)}
	case op.Kind == history.KindReceive && op.Timeout == 0:
		c.Value = nil
		c.Error = &history.FunctionError{Code: history.CodeTimeout, Message: fmt.Sprintf("no message came to the channel within %s", limit)}
	case op.Kind == history.KindWait && op.Timeout == 0:
		c.Value = nil
		c.Error = &history.FunctionError{
			Code:    history.CodeTimeout,
			Message: fmt.Sprintf("%s did not come within %s", history.Describe(op.Types, op.Filter), limit),
		}
	}
	return c
}

// commit ends the turn: everything it did becomes durable together, and only then do Functions start. It answers
// Running when there is something to wait for in this process.
func (r *run) commit(ctx context.Context) (execution.State, error) {
	// survey comes first: it may complete operations, and their entries belong to this turn.
	todo, err := r.survey(ctx)
	for done := (computed{since: r.engine.Clock.Now()}); err == nil && r.compute(ctx, todo, &done); {
		todo, err = r.survey(ctx)
	}
	if err != nil {
		return execution.Running, err
	}
	r.take()
	ended, failure := r.outcome()
	if _, interrupted := errors.AsType[*program.Interrupted](failure); interrupted {
		return execution.Running, failure
	}
	if last, more := r.continuation(); ended && more && failure == nil {
		return r.endGeneration(ctx, last)
	}
	if ended {
		return r.end(ctx, failure)
	}
	// The turn is kept with the failure as its last entry, so the history shows what filled it.
	if err := r.measure(ctx); err != nil {
		if r.machine.Stop(program.Stopped{Reason: err.Error()}) {
			return r.commit(ctx) // what it has deferred is called
		}
		return execution.Failed, r.fail(ctx, err)
	}
	// A result of an in-process Function comes through a channel, so an execution that has some stays in memory.
	state := execution.Parked
	if len(todo.inProcess) > 0 || todo.more {
		state = execution.Running
	}
	// A turn that has reached a Function and recorded nothing new need not be stored: everything that the Function's arguments depend
	// on is durable.
	if state == execution.Parked || len(r.entries)+len(r.closed)+len(todo.opened) > 0 {
		var err error
		defer leaveRoom(todo.opened) // what is given by then is not left
		if state, err = r.store(ctx, Commit{Open: todo.opened, Next: state}); err != nil {
			return state, err
		}
		r.stored(todo.opened)
	}
	if r.engine.owing(r.loaded.ID) > 0 {
		return state, nil // they are called when that is paid
	}
	for _, op := range todo.inProcess {
		r.start(ctx, op)
	}
	return state, nil
}

// outcome is that of the machine. If the turn is repeated, what the program came to does not count.
func (r *run) outcome() (ended bool, failure error) {
	if r.unchecked != nil {
		return true, r.unchecked
	}
	return r.machine.Outcome()
}

// stored notes that the store has opened operations.
func (r *run) stored(opened []Opening) {
	if len(opened) == 0 {
		return
	}
	r.touched = true
	first := opened[0].Due
	for _, o := range opened {
		known := r.open[o.Op.Ref]
		known.deadline, known.stored = o.Due, true
		r.open[o.Op.Ref] = known
		if o.Due.Before(first) {
			first = o.Due
		}
		switch o.Location {
		case activity.Cluster:
			r.engine.calls.Raise()
		case activity.Worker:
			r.offer(o)
		case activity.InProcess, activity.Held:
		}
	}
	// Once for all of them: the timer loop is awake after the first call, so a second one would have it look twice.
	r.engine.timers.Due(first)
}

// take moves what the machine recorded into the turn.
func (r *run) take() {
	entries, emits := r.machine.Take()
	now := r.engine.Clock.Now()
	for _, entry := range entries {
		r.seq++
		entry.Seq, entry.At, entry.Tries = r.seq, now, r.triesOf(entry)
		r.entries = append(r.entries, entry)
		r.weight += int64(len(entry.Value))
		if entry.Kind == history.KindStart && entry.Error == nil {
			r.takeChild(entry)
		}
		// A channel is closed with the run, and a run with deferred calls may have been sent a cancellation.
		r.touched = r.touched || entry.Kind == history.KindChannel || entry.Kind == history.KindDefer
	}
	for _, emit := range emits {
		r.emits = append(r.emits, r.emit(emit))
	}
}

// store writes the turn and starts an empty one. After an error the turn in memory is useless: the execution is given up, and replayed
// from what is stored.
func (r *run) store(ctx context.Context, c Commit) (execution.State, error) {
	c = r.whole(c)
	if c.Turn == 0 {
		r.engine.openings.learn(r.loaded.Execution.Program, c.beginsWell())
	}
	if r.broken != nil {
		return c.Next, r.broken
	}
	r.keepRoom(c.Open) // behind everything that waits: the worker has the call for a limited time
	done, err := r.engine.Store.Commit(ctx, c)
	if err != nil {
		return c.Next, r.loseRoom(c.Open, err)
	}
	if c.Family && done.State.Ended() {
		r.engine.orphans.Raise()
	}
	r.committed(c, done)
	return done.State, nil
}

// whole is the turn with everything that happened in it.
func (r *run) whole(c Commit) Commit {
	c.Lease, c.Execution = r.engine.lease, r.loaded.Execution
	c.Turn, c.Wakes = r.loaded.Turn, r.loaded.Wakes
	c.Entries, c.Emits, c.Closed = r.entries, r.emits, r.closed
	c.Starts, c.Family = r.starts, r.family
	c.LastSeq, c.At, c.Bare = r.seq, r.engine.Clock.Now(), !r.touched
	return c
}

// committed begins an empty turn after one was stored, and notifies callers that wait for the end of the run.
func (r *run) committed(c Commit, done Committed) {
	r.loaded.Turn = done.Turn
	r.settle()
	r.owe(done.State.Ended())
	written := int64(0)
	for _, e := range c.Entries {
		written += entrySize + int64(len(e.Value)) + e.Tries.Size()
		r.hasStatus = r.hasStatus || e.Kind == history.KindStatus
	}
	r.engine.Limits.Wrote(r.loaded.Organization, written)
	for _, e := range c.Emits {
		if e.Answers != "" {
			r.engine.answers.notify(callName{e.Organization, e.Answers, e.ID})
		}
	}
	r.entries, r.emits, r.closed, r.starts = nil, nil, nil, nil
	if done.State.Ended() {
		e := r.loaded.Execution
		e.State, e.Error, e.Stack, e.LastSeq = done.State, c.Error, c.Stack, c.LastSeq
		// As the store answers them: to the microsecond, and the last entry says when something was written.
		e.CreatedAt, e.EndedAt, e.UpdatedAt = e.CreatedAt.Truncate(time.Microsecond), c.At.Truncate(time.Microsecond), c.At
		if n := len(c.Entries); n > 0 {
			e.UpdatedAt = c.Entries[n-1].At
		}
		e.UpdatedAt = e.UpdatedAt.Truncate(time.Microsecond)
		r.engine.endings.notify(e, r.hasStatus)
	}
}
