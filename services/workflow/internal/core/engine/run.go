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
	// over says that the generation has ended and another one begun; warned that the log knows how long the history is; ahead that
	// the first turn was run and stored with the start, and that its Functions are still to be called.
	over, warned, ahead bool
	// source is the program of a run that may start children, starts what the present turn starts, and family says that there are some
	// that end with the run. broken is why the turn cannot be stored.
	source program.Program
	starts []ChildStart
	family bool
	broken error
	// unchecked is why the present turn is repeated: an event could not be checked.
	unchecked *program.Interrupted
	// consumed are the kinds of events of which this generation has consumed some, by their names.
	consumed map[string]history.Want
	// about is what policies about calls may ask of the run, permitted are the calls that they permit after an approval, and denials counts
	// those that they deny (permit.go).
	about     *callpolicy.Run
	permitted map[history.OpRef][]string
	denials   int
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

// drive continues an execution until it parks, ends, is taken away or ctx ends. parked says that the driver is in the
// cache now, or gone because there was no room, and has given up its place; rests that its generation is held back, and until when.
func (e *Engine) drive(ctx context.Context, j job, woken wake.Signal) (parked bool, rests *Loaded, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := e.places.unpark(j)
	switch {
	case j.driver != nil:
		d = j.driver
	case d != nil:
		d.wakeup = j.wakeup
	default:
		if d, err = e.newDriver(ctx, j); err != nil {
			return false, nil, err
		}
	}
	d.woken = woken
	defer func() {
		// A panic would come again at every claim, so it ends the run. This is deferred after stop and so runs before it:
		// fail needs a ctx that has not ended.
		if r := recover(); r != nil {
			e.Log.ErrorContext(ctx, "turn panicked", "execution", j.id, "panic", r, "stack", string(debug.Stack()))
			err = d.fail(ctx, fmt.Errorf("internal error: %v", r))
		}
		if !parked && d.machine != nil {
			d.machine.Close()
		}
	}()
	for {
		if d.machine == nil && d.loaded.HeldUntil.After(e.Clock.Now()) {
			return false, &d.loaded, nil
		}
		state, err := d.run(ctx)
		if err == nil && d.over {
			following, err := d.next(ctx)
			if err != nil {
				return false, nil, err
			}
			d = following
			continue
		}
		if err != nil || state != execution.Parked {
			return false, nil, err
		}
		if e.places.park(d, woken) {
			return true, nil, nil
		}
	}
}

// freshDriver is a driver that has done nothing yet.
func (e *Engine) freshDriver(l Loaded) *run {
	d := &run{engine: e, loaded: l, open: map[history.OpRef]openOp{}}
	d.needing()
	return d
}

// newDriver makes a driver of what the job has, or else of what is stored.
func (e *Engine) newDriver(ctx context.Context, j job) (*run, error) {
	if j.started != nil {
		return e.freshDriver(*j.started), nil
	}
	d := e.freshDriver(Loaded{})
	loaded, err := e.Store.Load(ctx, j.id)
	if err != nil {
		return nil, err
	}
	d.loaded, d.seq, d.touched = loaded, loaded.Base+int64(len(loaded.History)), true
	d.needing()
	for _, o := range loaded.Open {
		d.open[o.Op] = openOp{deadline: o.Deadline, since: e.Clock.Now(), stored: true}
	}
	for _, p := range loaded.Polls {
		known := d.open[p.Op]
		known.poll = &p
		d.open[p.Op] = known
	}
	d.decisions()
	return d, nil
}

// run repeats the turn, up to the end of the generation: apply what arrived, commit, wait. A driver that is new begins with the replay of
// the history, also of an empty one, which starts the program; one that was parked only looks, unless the wake-up carried what has arrived.
func (d *run) run(ctx context.Context) (execution.State, error) {
	arrived, state, err := d.begin(ctx)
	if err != nil || state != execution.Running {
		return state, err
	}
	for {
		d.apply(arrived)
		state, err := d.commit(ctx)
		if fault.Is(err, fault.Invalid) {
			return execution.Failed, d.drop(ctx, err)
		}
		if err != nil || state != execution.Running || d.over {
			return state, err
		}
		if arrived, err = d.await(ctx); err != nil {
			return execution.Running, err
		}
	}
}

// begin brings a driver up to date with its execution, and returns what has arrived. With any state but Running there is nothing to
// continue.
func (d *run) begin(ctx context.Context) (arrived []Arrival, state execution.State, err error) {
	switch {
	case d.machine == nil:
		if failed, err := d.replay(ctx); failed || err != nil {
			return nil, execution.Failed, err
		}
		arrived, d.loaded.Arrived = d.loaded.Arrived, nil
		return arrived, execution.Running, nil
	case d.ahead:
		d.ahead = false
		return nil, execution.Running, nil
	}
	if arrival, all := d.fromWakeup(); all {
		return []Arrival{arrival}, execution.Running, nil
	}
	standing, arrived, err := d.look(ctx)
	return arrived, standing, err
}

// openProgram makes the machine of a run.
func (d *run) openProgram() (program.Machine, error) {
	e := d.engine
	return e.Scripts.Open(d.loaded.Program, d.loaded.Inputs, program.Environment{
		Ref:          d.loaded.Ref,
		Workflow:     d.loaded.Workflow,
		Organization: d.loaded.Organization,
		Continuation: d.loaded.Continuation,
		Begun:        len(d.loaded.Open) > 0,
		Now:          e.Clock.Now,
		UUID:         e.newRef,
		Random:       e.Random,
		Token:        history.NewToken,
		Emit: func(id, eventType string, data json.RawMessage) *history.FunctionError {
			refusal := e.CheckEmit(d.emit(history.Emit{ID: id, Type: eventType, Data: data}))
			if refusal != nil && refusal.Code == history.CodeUnreachable {
				d.unchecked = &program.Interrupted{Reason: refusal.Message}
			}
			return refusal
		},
	})
}

// replay brings the program to where the history ends. failed says that the run has been ended, because it cannot.
func (d *run) replay(ctx context.Context) (failed bool, err error) {
	machine, err := d.openProgram()
	if _, interrupted := errors.AsType[*program.Interrupted](err); interrupted {
		return false, err
	}
	if err != nil {
		return true, d.fail(ctx, err)
	}
	d.machine = machine
	if err := machine.Replay(d.loaded.History); err != nil {
		// A failure of the program is for Outcome: the first commit ends the run with the entries that led to it.
		if _, isMismatch := errors.AsType[*program.Mismatch](err); isMismatch {
			return true, d.fail(ctx, err)
		}
	}
	for _, entry := range d.loaded.History {
		d.weight += int64(len(entry.Value))
		d.family = d.family || entry.Kind == history.KindStart // also where all of them are detached, which changes nothing
	}
	d.keepSource()
	// The machine has them, in its own form.
	d.loaded.History, d.loaded.Program, d.loaded.Inputs, d.loaded.Continuation = nil, program.Program{}, nil, nil
	return false, nil
}

// keepSource keeps what children are started with, where there may be some.
func (d *run) keepSource() {
	d.family = d.family || isParent(d.loaded.Continuation)
	if startsChildren(d.loaded.Program) {
		d.source = d.loaded.Program
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
func (d *run) size() int64 {
	return runSize + branchSize*int64(len(d.open)) + valueGrowth*d.weight + entrySize*(d.seq-d.loaded.Base)
}

func (d *run) pending(ref history.OpRef) (history.Op, bool) {
	for _, op := range d.machine.Pending() {
		if op.Ref == ref {
			return op, true
		}
	}
	return history.Op{}, false
}

// apply completes operations with what has arrived. Of several arrivals for one operation the first in the store's
// order wins, which puts events and answers before timers.
func (d *run) apply(arrived []Arrival) {
	for _, a := range arrived {
		if a.Op == history.Cancellation {
			d.cancelled(a)
			continue
		}
		op, pending := d.pending(a.Op)
		// An earlier arrival has completed the operation: a wait may time out after its event has arrived.
		if !pending {
			continue
		}
		if known := d.open[a.Op]; known.hold != nil {
			d.held(a, known)
			continue
		}
		c := history.Completion{Op: a.Op, Value: a.Value, Error: a.Error, Event: a.Event}
		if known := d.open[a.Op]; known.poll != nil {
			// The store drops the answers of earlier rounds: they are to calls that are closed.
			if c.Round = known.poll.Round; a.Kind == TimerArrived {
				d.pollTime(op, known)
			} else {
				d.observe(op, known, c)
			}
			continue
		}
		if a.Kind == TimerArrived {
			c = expired(op, d.limit(op))
		}
		if c.Event > 0 {
			d.note(op)
		}
		d.complete(c)
	}
}

// complete hands the result of a Function to the program, or to the poll that asked for it.
func (d *run) complete(c history.Completion) {
	if known := d.open[c.Op]; known.poll != nil && c.Round > 0 {
		if op, pending := d.pending(c.Op); pending {
			d.observe(op, known, c)
		}
		return
	}
	d.finish(c)
}

// finish hands a completion to the program, which runs on until it blocks.
func (d *run) finish(c history.Completion) {
	if d.machine.Complete(c) {
		d.forget(c.Op)
	}
}

// forget drops what is known of an operation that is over. A Function that is still under way, because its timer
// was faster, is cancelled.
func (d *run) forget(ref history.OpRef) {
	if d.open[ref].stored {
		d.closed = append(d.closed, ref)
	}
	delete(d.open, ref)
	if cancel, ok := d.running[ref]; ok {
		cancel()
		delete(d.running, ref)
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
func (d *run) commit(ctx context.Context) (execution.State, error) {
	// survey comes first: it may complete operations, and their entries belong to this turn.
	todo, err := d.survey(ctx)
	if err != nil {
		return execution.Running, err
	}
	d.take()
	ended, failure := d.outcome()
	if _, interrupted := errors.AsType[*program.Interrupted](failure); interrupted {
		return execution.Running, failure
	}
	if last, more := d.continuation(); ended && more && failure == nil {
		return d.endGeneration(ctx, last)
	}
	if ended {
		return d.end(ctx, failure)
	}
	// The turn is kept with the failure as its last entry, so the history shows what filled it.
	if err := d.measure(ctx); err != nil {
		if d.machine.Stop(program.Stopped{Reason: err.Error()}) {
			return d.commit(ctx) // what it has deferred is called
		}
		return execution.Failed, d.fail(ctx, err)
	}
	// A result of an in-process Function comes through a channel, so an execution that has some stays in memory.
	state := execution.Parked
	if len(todo.inProcess) > 0 || todo.more {
		state = execution.Running
	}
	// A turn that has reached a Function and recorded nothing new need not be stored: everything that the Function's arguments depend
	// on is durable.
	if state == execution.Parked || len(d.entries)+len(d.closed)+len(todo.opened) > 0 {
		var err error
		if state, err = d.store(ctx, Commit{Open: todo.opened, Next: state}); err != nil {
			return state, err
		}
		d.stored(todo.opened)
	}
	for _, op := range todo.inProcess {
		d.start(ctx, op)
	}
	return state, nil
}

// outcome is that of the machine. If the turn is repeated, what the program came to does not count.
func (d *run) outcome() (ended bool, failure error) {
	if d.unchecked != nil {
		return true, d.unchecked
	}
	return d.machine.Outcome()
}

// stored notes that the store has opened operations.
func (d *run) stored(opened []Opening) {
	if len(opened) == 0 {
		return
	}
	d.touched = true
	first := opened[0].Due
	for _, o := range opened {
		known := d.open[o.Op.Ref]
		known.deadline, known.stored = o.Due, true
		d.open[o.Op.Ref] = known
		if o.Due.Before(first) {
			first = o.Due
		}
		switch o.Location {
		case activity.Cluster:
			d.engine.calls.Raise()
		case activity.Worker:
			if d.engine.Offered != nil {
				d.engine.Offered(d.loaded.Organization, o.Op.Name)
			}
		case activity.InProcess, activity.Held:
		}
	}
	// Once for all of them: the timer loop is awake after the first call, so a second one would have it look twice.
	d.engine.timers.Due(first)
}

// take moves what the machine recorded into the turn.
func (d *run) take() {
	entries, emits := d.machine.Take()
	now := d.engine.Clock.Now()
	for _, entry := range entries {
		d.seq++
		entry.Seq, entry.At = d.seq, now
		d.entries = append(d.entries, entry)
		d.weight += int64(len(entry.Value))
		if entry.Kind == history.KindStart {
			d.takeChild(entry)
		}
		// A channel is closed with the run, and a run with deferred calls may have been sent a cancellation.
		d.touched = d.touched || entry.Kind == history.KindChannel || entry.Kind == history.KindDefer
	}
	for _, emit := range emits {
		d.emits = append(d.emits, d.emit(emit))
	}
}

// store writes the turn and starts an empty one. After an error the turn in memory is useless: the execution is given up, and replayed
// from what is stored.
func (d *run) store(ctx context.Context, c Commit) (execution.State, error) {
	c = d.whole(c)
	if c.Turn == 0 {
		d.engine.openings.learn(d.loaded.Execution.Program, c.beginsWell())
	}
	if len(c.Starts) > 0 {
		if d.broken != nil {
			return c.Next, d.broken
		}
		if err := d.engine.allow(ctx, d.loaded.Organization, len(c.Starts)); err != nil {
			return c.Next, err
		}
	}
	done, err := d.engine.Store.Commit(ctx, c)
	if err != nil {
		return c.Next, err
	}
	if c.Family && done.State.Ended() {
		d.engine.orphans.Raise()
	}
	d.committed(c, done)
	return done.State, nil
}

// whole is the turn with everything that happened in it.
func (d *run) whole(c Commit) Commit {
	c.Lease, c.Execution = d.engine.lease, d.loaded.Execution
	c.Turn, c.Wakes = d.loaded.Turn, d.loaded.Wakes
	c.Entries, c.Emits, c.Closed = d.entries, d.emits, d.closed
	c.Starts, c.Family = d.starts, d.family
	c.LastSeq, c.At, c.Bare = d.seq, d.engine.Clock.Now(), !d.touched
	return c
}

// committed begins an empty turn after one was stored, and notifies callers that wait for the end of the run.
func (d *run) committed(c Commit, done Committed) {
	d.loaded.Turn = done.Turn
	for _, e := range c.Emits {
		if e.Answers != "" {
			d.engine.answers.notify(callName{e.Organization, e.Answers, e.ID})
		}
	}
	d.entries, d.emits, d.closed, d.starts = nil, nil, nil, nil
	if done.State.Ended() {
		e := d.loaded.Execution
		e.State, e.Error, e.Stack, e.LastSeq, e.EndedAt, e.UpdatedAt = done.State, c.Error, c.Stack, c.LastSeq, c.At, c.At
		d.engine.endings.notify(e)
	}
}

// await returns what has arrived, after a result of this process, a wake-up, or a while.
func (d *run) await(ctx context.Context) ([]Arrival, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(d.answered) > 0 {
		answered := d.answered
		d.answered = nil
		for _, c := range answered {
			d.complete(c)
		}
		d.moreResults()
		return nil, nil
	}
	// If no Function runs, the turn was cut short, or an arrival kept it from parking: look at once.
	if len(d.running) > 0 {
		// Results that are available go first: the order is not left to chance, so that a simulated schedule can be repeated.
		if d.moreResults() {
			return nil, nil
		}
		t := d.engine.Clock.NewTimer(d.patience())
		defer t.Stop()
		select {
		case c := <-d.results:
			d.complete(c)
			d.moreResults()
			return nil, nil // whatever else has arrived raises woken
		case <-d.woken:
		case <-t.C():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	_, arrived, err := d.look(ctx)
	return arrived, err
}

// moreResults takes the results that have arrived meanwhile, so that they share the commit, and reports whether there were some.
func (d *run) moreResults() (some bool) {
	for len(d.running) > 0 {
		select {
		case c := <-d.results:
			d.complete(c)
			some = true
		default:
			return some
		}
	}
	return some
}

// fromWakeup takes the arrival that the wake-up carries. all says that nothing else has arrived since the run parked: the counter of
// arrivals is then one higher than at that time. A look at the moment of its commit would have read the same, so the fence and the
// counter of the next commit notice whatever has happened after it, as they do after a look.
func (d *run) fromWakeup() (arrival Arrival, all bool) {
	c := d.wakeup
	d.wakeup = nil
	if c == nil || c.Wakes != d.loaded.Wakes+1 {
		return Arrival{}, false
	}
	d.touched, d.loaded.Wakes = true, c.Wakes
	return c.Arrival, true
}

// look reads what has arrived for the execution. If its state is Parked there is none: the wake-up was late.
func (d *run) look(ctx context.Context) (execution.State, []Arrival, error) {
	d.touched = true
	// The counter is read before the arrivals. What arrives later makes it differ, so the next commit does not park.
	standing, arrived, err := d.engine.Store.Arrivals(ctx, d.loaded.ID)
	d.loaded.Wakes = standing.Wakes
	return standing.State, arrived, err
}
