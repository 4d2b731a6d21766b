package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
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
	// came is what a parked run was woken for, until it is taken.
	came *Came
	// running are the Functions under way in this process. results takes what becomes of them, one at a time; answered has what pure
	// Functions have answered on the spot.
	running  map[OpRef]context.CancelFunc
	results  chan Completion
	answered []Completion
	// over says that the generation has ended and another one begun; warned that the log knows how long the history is; ahead that
	// the first turn was run and stored with the start, and that its Functions are still to be called.
	over, warned, ahead bool
	// had are kinds of events that this generation has had some of, by their names.
	had map[string]Want
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
// cache now, or gone because there was no room, and has given up its place; rests that its generation is held back, and until when.
func (e *Engine) drive(ctx context.Context, j job, woken signal) (parked bool, rests *Loaded, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := e.places.unpark(j)
	switch {
	case j.driver != nil:
		d = j.driver
	case d != nil:
		d.came = j.came
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
		if err != nil || state != Parked {
			return false, nil, err
		}
		if e.places.park(d, woken) {
			return true, nil, nil
		}
	}
}

// freshDriver is a driver that has done nothing yet.
func (e *Engine) freshDriver(l Loaded) *driver {
	return &driver{engine: e, loaded: l, open: map[OpRef]openOp{}}
}

// newDriver has what a driver begins with, from the job or else from the store.
func (e *Engine) newDriver(ctx context.Context, j job) (*driver, error) {
	if j.started != nil {
		return e.freshDriver(*j.started), nil
	}
	d := e.freshDriver(Loaded{})
	loaded, err := e.Store.Load(ctx, j.id)
	if err != nil {
		return nil, err
	}
	d.loaded, d.seq, d.touched = loaded, loaded.Base+int64(len(loaded.History)), true
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

// run repeats the turn, up to the end of the generation: apply what arrived, commit, wait. A driver that is new begins with the replay of the history,
// also of an empty one, which starts the program; one that was parked only looks, where it was not told what has come.
func (d *driver) run(ctx context.Context) (State, error) {
	arrived, state, err := d.begin(ctx)
	if err != nil || state != Running {
		return state, err
	}
	for {
		d.apply(arrived)
		state, err := d.commit(ctx)
		if fault.Is(err, fault.Invalid) {
			return Failed, d.drop(ctx, err)
		}
		if err != nil || state != Running || d.over {
			return state, err
		}
		if arrived, err = d.await(ctx); err != nil {
			return Running, err
		}
	}
}

// begin brings a driver to where its execution stands, and answers what has arrived there. Any state but Running says that there is
// nothing to go on with.
func (d *driver) begin(ctx context.Context) (arrived []Arrival, state State, err error) {
	switch {
	case d.machine == nil:
		if failed, err := d.replay(ctx); failed || err != nil {
			return nil, Failed, err
		}
		arrived, d.loaded.Arrived = d.loaded.Arrived, nil
		return arrived, Running, nil
	case d.ahead:
		d.ahead = false
		return nil, Running, nil
	}
	if came, all := d.told(); all {
		return []Arrival{came}, Running, nil
	}
	standing, arrived, err := d.look(ctx)
	return arrived, standing, err
}

// openProgram makes the machine of a run.
func (d *driver) openProgram() (Machine, error) {
	e := d.engine
	return e.Scripts.Open(d.loaded.Program, d.loaded.Inputs, Environment{
		Ref:          d.loaded.Ref,
		Organization: d.loaded.Organization,
		Continuation: d.loaded.Continuation,
		Now:          e.Clock.Now,
		UUID:         e.newRef,
		Random:       e.Random,
		Token:        newToken,
		Emit: func(id, eventType string, data json.RawMessage) *FunctionError {
			return e.CheckEmit(d.emit(Emit{ID: id, Type: eventType, Data: data}))
		},
	})
}

// replay brings the program to where the history ends. failed says that the run has been ended, because it cannot.
func (d *driver) replay(ctx context.Context) (failed bool, err error) {
	machine, err := d.openProgram()
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
	d.loaded.History, d.loaded.Program, d.loaded.Inputs, d.loaded.Continuation = nil, Program{}, nil, nil
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
	return runSize + branchSize*int64(len(d.open)) + valueGrowth*d.weight + entrySize*(d.seq-d.loaded.Base)
}

func (d *driver) pending(ref OpRef) (Op, bool) {
	for _, op := range d.machine.Pending() {
		if op.Ref == ref {
			return op, true
		}
	}
	return Op{}, false
}
