package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

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
		if c.Event > 0 {
			d.note(op)
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

// commit ends the turn: everything it did becomes durable together, and only then do Functions start. It answers
// Running when there is something to wait for in this process.
func (d *driver) commit(ctx context.Context) (State, error) {
	// survey comes first: it may complete operations, and their entries belong to this turn.
	todo, err := d.survey(ctx)
	if err != nil {
		return Running, err
	}
	d.take()
	ended, failure := d.machine.Outcome()
	if _, interrupted := errors.AsType[*Interrupted](failure); interrupted {
		return Running, failure
	}
	if last, more := d.continuation(); ended && more && failure == nil {
		return d.goOn(ctx, last)
	}
	if ended {
		return d.end(ctx, failure)
	}
	// The turn is kept with the failure as its last entry, so the history shows what filled it.
	if err := d.measure(ctx); err != nil {
		return Failed, d.fail(ctx, err)
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
		d.engine.timers.due(o.Due)
		if o.Location == Cluster {
			d.engine.calls.raise()
		}
	}
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
	c = d.whole(c)
	if c.Turn == 0 {
		d.engine.openings.learn(d.loaded.Execution.Program, c.beginsWell())
	}
	done, err := d.engine.Store.Commit(ctx, c)
	if err != nil {
		return c.Next, err
	}
	d.committed(c, done)
	return done.State, nil
}

// whole is the turn with everything that happened in it.
func (d *driver) whole(c Commit) Commit {
	c.Lease, c.Execution = d.engine.lease, d.loaded.Execution
	c.Turn, c.Wakes = d.loaded.Turn, d.loaded.Wakes
	c.Entries, c.Emits, c.Closed = d.entries, d.emits, d.closed
	c.LastSeq, c.At, c.Bare = d.seq, d.engine.Clock.Now(), !d.touched
	return c
}

// committed is behind a turn that is stored: an empty one begins, and who waits for the end of the run is told.
func (d *driver) committed(c Commit, done Committed) {
	d.loaded.Turn = done.Turn
	d.entries, d.emits, d.closed = nil, nil, nil
	if done.State.Ended() {
		e := d.loaded.Execution
		e.State, e.Error, e.Stack, e.LastSeq, e.EndedAt, e.UpdatedAt = done.State, c.Error, c.Stack, c.LastSeq, c.At, c.At
		d.engine.endings.tell(e)
	}
}
