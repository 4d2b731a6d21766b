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

// driver takes one execution from turn to turn for as long as it has work in this process. It belongs to one
// goroutine; the Functions it starts speak to it through results only.
type driver struct {
	engine  *Engine
	woken   signal
	loaded  Loaded
	machine Machine
	// seq is the last entry of the history, entries and emits what the present turn adds.
	seq     int64
	entries []Entry
	emits   []Emit
	// closed are the operations that the present turn completes.
	closed []OpRef
	// opened is what the store knows to be open, with deadlines.
	opened map[OpRef]time.Time
	// running are the Functions under way in this process. results takes what becomes of them, one at a time.
	running map[OpRef]context.CancelFunc
	results chan Completion
}

// drive continues an execution until it parks, ends, is taken away or ctx ends.
func (e *Engine) drive(ctx context.Context, execution int64, woken signal) (err error) {
	loaded, err := e.Store.Load(ctx, execution)
	if err != nil {
		return err
	}
	d := &driver{
		engine: e, woken: woken, loaded: loaded,
		seq:     int64(len(loaded.History)),
		opened:  map[OpRef]time.Time{},
		running: map[OpRef]context.CancelFunc{},
		results: make(chan Completion),
	}
	for _, o := range loaded.Open {
		d.opened[o.Op] = o.Deadline
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// A panic would come again at every claim, so it ends the run. This is deferred after stop and so runs before it:
	// fail needs a ctx that has not ended.
	defer func() {
		if r := recover(); r != nil {
			e.Log.ErrorContext(ctx, "turn panicked", "execution", execution, "panic", r, "stack", string(debug.Stack()))
			err = d.fail(ctx, fmt.Errorf("internal error: %v", r))
		}
	}()
	return d.run(ctx)
}

// run replays the history and then repeats the turn: apply what arrived, commit, wait. Replay comes first also for an
// execution without a history, which it starts.
func (d *driver) run(ctx context.Context) error {
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
	if err != nil {
		return d.fail(ctx, err)
	}
	d.machine = machine
	defer machine.Close()
	if err := machine.Replay(d.loaded.History); err != nil {
		// A failure of the program is for Outcome: the first commit ends the run with the entries that led to it.
		if _, isMismatch := errors.AsType[*Mismatch](err); isMismatch {
			return d.fail(ctx, err)
		}
	}
	arrived := d.loaded.Arrived
	for {
		d.apply(arrived)
		state, err := d.commit(ctx)
		if fault.Is(err, fault.Invalid) {
			return d.drop(ctx, err)
		}
		if err != nil || state != Running {
			return err
		}
		if arrived, err = d.await(ctx); err != nil {
			return err
		}
	}
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
		if a.Kind == TimerArrived {
			c = expired(op, d.limit(op))
		}
		d.complete(c)
	}
}

// complete hands a completion to the program, which runs on until it blocks. A Function that is still being carried
// out, because its timer was faster, is told to stop: nobody waits for it.
func (d *driver) complete(c Completion) {
	if !d.machine.Complete(c) {
		return
	}
	d.closed = append(d.closed, c.Op)
	if cancel, ok := d.running[c.Op]; ok {
		cancel()
		delete(d.running, c.Op)
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
	if ended, failure := d.machine.Outcome(); ended {
		return d.end(ctx, failure)
	}
	// The turn is kept with the failure as its last entry, so the history shows what filled it.
	if int(d.seq) > d.engine.Settings.History {
		return Failed, d.fail(ctx, fmt.Errorf("the history has grown past %d entries", d.engine.Settings.History))
	}
	// A result of an in-process Function comes through a channel, so an execution that has some stays in memory.
	next := Parked
	if len(todo.inProcess) > 0 || todo.more {
		next = Running
	}
	state, err := d.store(ctx, Commit{Open: todo.opened, Next: next})
	if err != nil {
		return state, err
	}
	for _, o := range todo.opened {
		d.opened[o.Op.Ref] = o.Due
	}
	// A new timer may be due before the one that the timer loop sleeps for.
	if len(todo.opened) > 0 {
		d.engine.timers.raise()
		d.engine.calls.raise()
	}
	for _, op := range todo.inProcess {
		d.start(ctx, op)
	}
	return state, nil
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
	c.LastSeq, c.At = d.seq, d.engine.Clock.Now()
	done, err := d.engine.Store.Commit(ctx, c)
	if err != nil {
		return c.Next, err
	}
	d.loaded.Turn = done.Turn
	d.entries, d.emits, d.closed = nil, nil, nil
	return done.State, nil
}

// await returns what has arrived, after a result of this process, a wake-up, or a while.
func (d *driver) await(ctx context.Context) ([]Arrival, error) {
	// Nothing runs: then the turn was cut short, or something had come that kept it from parking. Look at once.
	if len(d.running) > 0 {
		t := d.engine.Clock.NewTimer(d.engine.Settings.Poll)
		defer t.Stop()
		select {
		case c := <-d.results:
			d.complete(c)
		case <-d.woken:
		case <-t.C():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	// The counter is read before the arrivals. What comes after it makes it differ, and the next commit does not park.
	wakes, arrived, err := d.engine.Store.Arrivals(ctx, d.loaded.ID)
	d.loaded.Wakes = wakes
	return arrived, err
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
	return s[:limit] + "… cut"
}
