package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// driver takes one execution from turn to turn for as long as it has work in this process, and stays in memory between
// that, as long as there is room. It belongs to one goroutine at a time; the Functions it starts speak to it through
// results only.
type driver struct {
	engine  *Engine
	woken   signal
	loaded  Loaded
	machine Machine
	// seq is the last entry of the history, entries and emits what the present turn adds. weight is the size of all
	// recorded values, in bytes.
	seq     int64
	entries []Entry
	emits   []Emit
	weight  int64
	// closed are the operations that the present turn completes and that the store knows.
	closed []OpRef
	// open are the operations that branches are blocked on.
	open map[OpRef]openOp
	// touched is set once the store may hold something open for the execution.
	touched bool
	// running are the Functions under way in this process. results takes what becomes of them, one at a time.
	running map[OpRef]context.CancelFunc
	results chan Completion
}

// openOp is what is known of a blocked operation.
type openOp struct {
	deadline time.Time
	// since is when this process saw it first, stored whether the store knows of it.
	since  time.Time
	stored bool
	// poll is how far a poll has come.
	poll *Polling
}

// drive continues an execution until it parks, ends, is taken away or ctx ends. parked says that the driver is in the
// cache now, or gone because there was no room, and has given up its place.
func (e *Engine) drive(ctx context.Context, j job, woken signal) (parked bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := e.places.unpark(j)
	if d == nil {
		if d, err = e.newDriver(ctx, j); err != nil {
			return false, err
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
		state, err := d.run(ctx)
		if err != nil || state != Parked {
			return false, err
		}
		if e.places.park(d, woken) {
			return true, nil
		}
	}
}

// newDriver has what a driver begins with, from the job or else from the store.
func (e *Engine) newDriver(ctx context.Context, j job) (*driver, error) {
	d := &driver{engine: e, open: map[OpRef]openOp{}, running: map[OpRef]context.CancelFunc{}, results: make(chan Completion)}
	if j.started != nil {
		d.loaded = *j.started
		return d, nil
	}
	loaded, err := e.Store.Load(ctx, j.id)
	if err != nil {
		return nil, err
	}
	d.loaded, d.seq, d.touched = loaded, int64(len(loaded.History)), true
	for _, o := range loaded.Open {
		d.open[o.Op] = openOp{deadline: o.Deadline, since: e.Clock.Now(), stored: true}
	}
	for _, p := range loaded.Polls {
		known := d.open[p.Op]
		known.poll = &p
		d.open[p.Op] = known
	}
	return d, nil
}

// run repeats the turn: apply what arrived, commit, wait. A driver that is new begins with the replay of the history,
// also of an empty one, which starts the program; one that was parked only looks.
func (d *driver) run(ctx context.Context) (State, error) {
	var arrived []Arrival
	if d.machine == nil {
		if failed, err := d.replay(ctx); failed || err != nil {
			return Failed, err
		}
		arrived, d.loaded.Arrived = d.loaded.Arrived, nil
	} else {
		standing, found, err := d.look(ctx)
		if err != nil || standing == Parked {
			return standing, err
		}
		arrived = found
	}
	for {
		d.apply(arrived)
		state, err := d.commit(ctx)
		if fault.Is(err, fault.Invalid) {
			return Failed, d.drop(ctx, err)
		}
		if err != nil || state != Running {
			return state, err
		}
		if arrived, err = d.await(ctx); err != nil {
			return Running, err
		}
	}
}

// replay brings the program to where the history ends. failed says that the run has been ended, because it cannot.
func (d *driver) replay(ctx context.Context) (failed bool, err error) {
	e := d.engine
	machine, err := e.Scripts.Open(d.loaded.Program, d.loaded.Inputs, Environment{
		Ref:    d.loaded.Ref,
		Now:    e.Clock.Now,
		UUID:   e.newRef,
		Random: drawn,
		Token:  newToken,
		Emit: func(id, eventType string, data json.RawMessage) *FunctionError {
			return e.CheckEmit(d.emit(Emit{ID: id, Type: eventType, Data: data}))
		},
	})
	if _, interrupted := errors.AsType[*Interrupted](err); interrupted {
		return false, err
	}
	if err != nil {
		return true, d.fail(ctx, err)
	}
	d.machine = machine
	if err := machine.Replay(d.loaded.History); err != nil {
		// A failure of the program is for Outcome: the first commit ends the run with the entries that led to it.
		if _, isMismatch := errors.AsType[*Mismatch](err); isMismatch {
			return true, d.fail(ctx, err)
		}
	}
	for _, entry := range d.loaded.History {
		d.weight += int64(len(entry.Value))
	}
	// The machine has them, in its own form.
	d.loaded.History, d.loaded.Program, d.loaded.Inputs = nil, Program{}, nil
	return false, nil
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
func (d *driver) size() int64 {
	return runSize + branchSize*int64(len(d.open)) + valueGrowth*d.weight + entrySize*d.seq
}

// apply completes operations with what has arrived. Of several arrivals for one operation the first in the store's
// order wins, which puts events and answers before timers.
func (d *driver) apply(arrived []Arrival) {
	for _, a := range arrived {
		op, pending := d.pending(a.Op)
		// An arrival before it has completed the operation: a wait's time can be up when its event is there, too.
		if !pending {
			continue
		}
		c := Completion{Op: a.Op, Value: a.Value, Error: a.Error, Event: a.Event}
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
		d.complete(c)
	}
}

// complete hands the result of a Function to the program, or to the poll that asked for it.
func (d *driver) complete(c Completion) {
	if known := d.open[c.Op]; known.poll != nil && c.Round > 0 {
		if op, pending := d.pending(c.Op); pending {
			d.observe(op, known, c)
		}
		return
	}
	d.finish(c)
}

// finish hands a completion to the program, which runs on until it blocks.
func (d *driver) finish(c Completion) {
	if d.machine.Complete(c) {
		d.forget(c.Op)
	}
}

// forget drops what is known of an operation that is over. A Function that is still being carried out, because its
// timer was faster, is told to stop: nobody waits for it.
func (d *driver) forget(ref OpRef) {
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
func expired(op Op, limit time.Duration) Completion {
	c := Completion{Op: op.Ref, Value: json.RawMessage("null")}
	switch {
	case op.Kind == KindRun:
		c.Value = nil
		c.Error = &FunctionError{Code: CodeTimeout, Message: fmt.Sprintf("%s was not answered within %s", op.Name, limit)}
	case op.Kind == KindReceive && op.Timeout == 0:
		c.Value = nil
		c.Error = &FunctionError{Code: CodeTimeout, Message: fmt.Sprintf("no message came to the channel within %s", limit)}
	case op.Kind == KindWait && op.Timeout == 0:
		c.Value = nil
		c.Error = &FunctionError{Code: CodeTimeout, Message: fmt.Sprintf("%s did not come within %s", describe(op.Types, op.Filter), limit)}
	}
	return c
}

func (d *driver) pending(ref OpRef) (Op, bool) {
	for _, op := range d.machine.Pending() {
		if op.Ref == ref {
			return op, true
		}
	}
	return Op{}, false
}

// commit ends the turn: everything it did becomes durable together, and only then do Functions start. It answers
// Running when there is something to wait for in this process.
func (d *driver) commit(ctx context.Context) (State, error) {
	// survey comes first: it may complete operations, and their entries belong to this turn.
	todo := d.survey()
	d.take()
	ended, failure := d.machine.Outcome()
	if _, interrupted := errors.AsType[*Interrupted](failure); interrupted {
		return Running, failure
	}
	if ended {
		return d.end(ctx, failure)
	}
	// The turn is kept with the failure as its last entry, so the history shows what filled it.
	if int(d.seq) > d.engine.Settings.History {
		return Failed, d.fail(ctx, fmt.Errorf("the history has grown past %d entries", d.engine.Settings.History))
	}
	// A result of an in-process Function comes through a channel, so an execution that has some stays in memory.
	state := Parked
	if len(todo.inProcess) > 0 || todo.more {
		state = Running
	}
	// A turn that has reached a Function and recorded nothing new has nothing to make durable: everything that the
	// Function's arguments depend on is.
	if state == Parked || len(d.entries)+len(d.closed)+len(todo.opened) > 0 {
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

// stored notes that the store has opened operations.
func (d *driver) stored(opened []Opening) {
	if len(opened) == 0 {
		return
	}
	d.touched = true
	for _, o := range opened {
		known := d.open[o.Op.Ref]
		known.deadline, known.stored = o.Due, true
		d.open[o.Op.Ref] = known
	}
	// A new timer may be due before the one that the timer loop sleeps for.
	d.engine.timers.raise()
	d.engine.calls.raise()
}

// drop ends a run whose turn the store refuses for what is in it: doing it again would lead to the same.
func (d *driver) drop(ctx context.Context, refusal error) error {
	d.engine.Log.ErrorContext(ctx, "turn cannot be stored", "workflow", d.loaded.Workflow, "organization", d.loaded.Organization, "error", refusal)
	// Back to where the store stands: the last entry has to follow without a gap.
	d.seq -= int64(len(d.entries))
	d.entries, d.emits, d.closed = nil, nil, nil
	return d.fail(ctx, errors.New("what the program did last cannot be stored; the service's log says why"))
}

// take moves what the machine recorded into the turn.
func (d *driver) take() {
	entries, emits := d.machine.Take()
	now := d.engine.Clock.Now()
	for _, entry := range entries {
		d.seq++
		entry.Seq, entry.At = d.seq, now
		d.entries = append(d.entries, entry)
		d.weight += int64(len(entry.Value))
		d.touched = d.touched || entry.Kind == KindChannel // which is closed with the run
	}
	for _, emit := range emits {
		d.emits = append(d.emits, d.emit(emit))
	}
}

// emit completes an event with whose it is.
func (d *driver) emit(e Emit) Emit {
	e.Organization, e.Workflow, e.Time = d.loaded.Organization, d.loaded.Workflow, d.engine.Clock.Now()
	return e
}

// store writes the turn and starts an empty one. After an error the turn is still there and worth nothing: the
// execution is given up, and replayed from what is stored.
func (d *driver) store(ctx context.Context, c Commit) (State, error) {
	c.Lease, c.Execution = d.engine.lease, d.loaded.Execution
	c.Turn, c.Wakes = d.loaded.Turn, d.loaded.Wakes
	c.Entries, c.Emits, c.Closed = d.entries, d.emits, d.closed
	c.LastSeq, c.At, c.Bare = d.seq, d.engine.Clock.Now(), !d.touched
	done, err := d.engine.Store.Commit(ctx, c)
	if err != nil {
		return c.Next, err
	}
	d.loaded.Turn = done.Turn
	d.entries, d.emits, d.closed = nil, nil, nil
	if done.State.Ended() {
		e := d.loaded.Execution
		e.State, e.Error, e.LastSeq, e.EndedAt, e.UpdatedAt = done.State, c.Error, c.LastSeq, c.At, c.At
		d.engine.endings.tell(e)
	}
	return done.State, nil
}

// await returns what has arrived, after a result of this process, a wake-up, or a while.
func (d *driver) await(ctx context.Context) ([]Arrival, error) {
	// Nothing runs: then the turn was cut short, or something had come that kept it from parking. Look at once.
	if len(d.running) > 0 {
		t := d.engine.Clock.NewTimer(d.patience())
		defer t.Stop()
		select {
		case c := <-d.results:
			d.complete(c)
			d.moreResults()
			return nil, nil // whatever else has come raises woken
		case <-d.woken:
		case <-t.C():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	_, arrived, err := d.look(ctx)
	return arrived, err
}

// moreResults takes the results that have come meanwhile, so that they share the commit.
func (d *driver) moreResults() {
	for len(d.running) > 0 {
		select {
		case c := <-d.results:
			d.complete(c)
		default:
			return
		}
	}
}

// patience is how long to wait for the Functions under way before a look at the store, and before those become known
// to it that are not.
func (d *driver) patience() time.Duration {
	patience, now := d.engine.Settings.Poll, d.engine.Clock.Now()
	for ref := range d.running {
		if known := d.open[ref]; !known.stored {
			patience = min(patience, known.intended().Sub(now))
		}
	}
	return max(patience, time.Millisecond)
}

// look reads what has come for the execution. A Parked one has nothing: a wake-up was late.
func (d *driver) look(ctx context.Context) (State, []Arrival, error) {
	d.touched = true
	// The counter is read before the arrivals. What comes after it makes it differ, and the next commit does not park.
	standing, arrived, err := d.engine.Store.Arrivals(ctx, d.loaded.ID)
	d.loaded.Wakes = standing.Wakes
	return standing.State, arrived, err
}

// maxError bounds the text of a failure in bytes: it goes into the row, the history and an event.
const maxError = 4 << 10

// end commits the last turn: the final entry and the event that tells the world, in the transaction of the rest.
// Every run that fails tells so (D36). The event's id is made of handle and state: a repeat is the same event (D16).
func (d *driver) end(ctx context.Context, failure error) (State, error) {
	for ref, cancel := range d.running {
		cancel()
		delete(d.running, ref)
	}
	state, kind, text := Completed, KindCompleted, ""
	emit := Emit{Type: TypeCompleted}
	data := map[string]string{"workflow_id": d.loaded.Workflow}
	if failure != nil {
		state, kind, emit.Type = Failed, KindFailed, TypeFailed
		text = storable(truncate(failure.Error(), maxError))
		data["error"] = text
		d.logFailure(ctx, failure)
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return state, fmt.Errorf("encode %s of %q: %w", emit.Type, d.loaded.Workflow, err)
	}
	emit.ID, emit.Data = d.loaded.Ref+"/"+string(kind), encoded
	d.seq++
	d.entries = append(d.entries, Entry{Seq: d.seq, Op: OpRef{Branch: -1}, Kind: kind, Value: encoded, At: d.engine.Clock.Now()})
	d.emits = append(d.emits, d.emit(emit))
	return d.store(ctx, Commit{Next: state, Error: text})
}

// fail ends an execution that cannot even be replayed, or whose turn cannot be kept.
func (d *driver) fail(ctx context.Context, failure error) error {
	_, err := d.end(ctx, failure)
	return err
}

// logFailure is where the stack of a panic goes: histories hold none, for it differs between processes.
func (d *driver) logFailure(ctx context.Context, failure error) {
	d.engine.Log.WarnContext(ctx, "workflow failed", "workflow", d.loaded.Workflow, "organization", d.loaded.Organization, "error", failure)
	if panicked, ok := failure.(interface{ StackTrace() []byte }); ok {
		d.engine.Log.ErrorContext(ctx, "workflow panicked", "workflow", d.loaded.Workflow, "stack", string(panicked.StackTrace()))
	}
}

// storable is text that PostgreSQL takes: a program may fail with anything, and a failure that cannot be kept would be
// tried again for ever.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// truncate may cut a character in two. storable, which sees the text afterwards, mends that.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + Cut
}
