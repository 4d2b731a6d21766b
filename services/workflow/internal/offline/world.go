package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// The bounds of a test.
const (
	// retryAnswer is the pause before a call of a cluster is sent again that was answered with a retryable error.
	retryAnswer = 5 * time.Second
	maxTurns    = 100_000
	maxRuns     = 10_000
	maxEntries  = 100_000
)

// begins is when each test begins.
var begins = time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant, if a time could be one

// world is everything that a program can reach in a test: Functions, events, time, and the runs that it starts. It is an engine that has
// one thread and stores in memory; each turn is one commit.
type world struct {
	c       Case
	emits   func(history.Emit) *history.FunctionError
	scripts *script.Scripts
	now     time.Time
	runs    []*run
	// events are all that have arrived, by row from 1, and known those that have, by source and id.
	events []history.Event
	known  map[[2]string]bool
	// chance decides about crashes; nil: there are none. crashes counts them.
	chance  *rand.Rand
	crashes int

	answers  map[string][]Answer
	carriers map[string]Carrier
	done     map[string]Answer
	failures map[string]int
	calls    []madeCall
	effects  []string
	replies  map[[2]string]history.Answer
	unique   int
	turns    int
	// trouble is what the case itself lacks.
	trouble []string
	// replaying is set while a program repeats what is stored, and timed if it has asked for the time meanwhile.
	replaying, timed bool
}

// madeCall is a call of a Function that has had its effect.
type madeCall struct {
	function string
	args     json.RawMessage
}

// run is one run of a program. What is stored of it survives a crash: all but the machine.
type run struct {
	workflow, ref string
	program       program.Program
	inputs        json.RawMessage
	parent        *run
	detached      bool
	// since is how many events there were when it was started; it receives later ones only.
	since        int
	generation   int
	continuation json.RawMessage
	machine      program.Machine
	// entries are those of all generations, from base on those of the present one.
	entries  []history.Entry
	base     int
	open     map[history.OpRef]*opened
	consumed map[int]bool
	sent     []history.Emit
	ended    string
	failure  string
}

// opened is an operation that is blocked on.
type opened struct {
	due time.Time
	// attempts counts the calls, next is when there is another; zero: at once.
	attempts int
	next     time.Time
	// A poll: the round, whether it is calling, and what was seen last.
	round    int
	calling  bool
	deadline time.Time
	value    json.RawMessage
	err      *history.FunctionError
}

// errOver ends a test that does not end.
var errOver = fmt.Errorf("the test does not end: %d turns were made", maxTurns)

func newWorld(c Case, check func(history.Emit) *history.FunctionError, chance *rand.Rand) *world {
	w := &world{
		c: c, emits: check, scripts: script.New(script.Limits{}), now: begins, chance: chance,
		known: map[[2]string]bool{}, answers: map[string][]Answer{}, done: map[string]Answer{}, failures: map[string]int{},
		replies: map[[2]string]history.Answer{},
	}
	for name, list := range c.Functions {
		w.answers[name] = list
	}
	if !c.Begins.IsZero() {
		w.now = c.Begins
		w.unique = int(max(0, w.now.Sub(begins).Milliseconds())) // another case in the same world has other identifiers
	}
	if c.World != nil {
		w.carriers = c.World()
	}
	return w
}

// workflowID is what the run of a test is called.
const workflowID = "scenario"

// play carries a case out, to the end of its run or to where only more events could continue it.
func (w *world) play() (*run, error) {
	defer func() {
		for _, r := range w.runs {
			if r.machine != nil { // a program that is refused has none
				r.machine.Close()
			}
		}
	}()
	workflow := workflowID
	if w.c.Expect.Result != nil { // the engine keeps the results of children only
		workflow, _ = id.ChildRun(workflowID, workflowID, "") // a fixed one, which is valid
	}
	first := &run{workflow: workflow, program: w.c.Program, inputs: w.c.Inputs}
	if err := w.start(first); err != nil {
		return first, err
	}
	steps := w.c.Steps
	for {
		if err := w.settle(); err != nil {
			return first, err
		}
		switch {
		case first.ended != "":
			return first, nil
		case w.c.Patient && !w.nextAttempt().IsZero():
			w.now = w.nextAttempt()
		case len(steps) > 0:
			if err := w.act(first, steps[0]); err != nil {
				return first, err
			}
			steps = steps[1:]
		default:
			next, e := w.nextTime(), w.comes()
			switch {
			case e != nil && (next.IsZero() || !next.Before(e.Time)):
				w.now = later(w.now, e.Time)
				w.arrive(*e)
			case next.IsZero() || w.c.Expect.State == "waiting":
				return first, nil
			default:
				w.now = next
			}
		}
	}
}

// start begins a run.
func (w *world) start(r *run) error {
	if len(w.runs) >= maxRuns {
		return fmt.Errorf("the program has started %d runs, expected fewer", maxRuns)
	}
	w.unique++
	r.ref, r.generation = fmt.Sprintf("00000000-0000-7000-8000-%012d", w.unique), 1
	r.open, r.consumed, r.since = map[history.OpRef]*opened{}, map[int]bool{}, len(w.events)
	w.runs = append(w.runs, r)
	if err := w.scripts.Check(r.program, r.inputs); err != nil {
		return err
	}
	return w.begin(r)
}

// begin begins a generation.
func (w *world) begin(r *run) error {
	if err := w.reopen(r); err != nil {
		return err
	}
	return w.commit(r)
}

// reopen is what a process does that has nothing in memory: it replays what is stored.
func (w *world) reopen(r *run) error {
	differs, is, err := w.replay(r)
	switch {
	case is:
		return fmt.Errorf("after a crash the program does not fit its own history: entry %d: %w", differs.Seq, differs)
	case err == nil && w.timed:
		return errors.New("after a crash the program asks for the time where its history has an answer")
	}
	return err
}

// resume is reopen after everything was stored: the program has to wait for the same again.
func (w *world) resume(r *run) error {
	was := r.machine.Pending()
	if err := w.reopen(r); err != nil {
		return err
	}
	if is := r.machine.Pending(); !slices.EqualFunc(was, is, sameOp) {
		return fmt.Errorf("after a crash the program waits for %s, where it waited for %s", named(is), named(was))
	}
	return nil
}

// replay opens the program of a run and replays what is stored. differs is set if that does not fit.
func (w *world) replay(r *run) (differs *program.Mismatch, is bool, err error) {
	if r.machine != nil {
		r.machine.Close()
	}
	machine, err := w.scripts.Open(r.program, r.inputs, program.Environment{
		Ref: history.Handle(r.ref, 1, r.generation), Workflow: r.workflow, Continuation: r.continuation, Begun: len(r.open) > 0,
		Now: func() time.Time {
			w.timed = w.timed || w.replaying
			return w.now
		},
		UUID: func() string {
			w.unique++
			return fmt.Sprintf("00000000-0000-7000-9000-%012d", w.unique)
		},
		Random: func() float64 { return 0.5 },
		Token: func() string {
			w.unique++
			return "ch_" + base32(w.unique)
		},
		Emit: func(activity, eventType string, data json.RawMessage) *history.FunctionError {
			if slices.Contains(w.c.EventTypes, eventType) {
				return nil
			}
			return w.emits(w.emit(r, history.Emit{ID: activity, Type: eventType, Data: data}))
		},
	})
	if err != nil {
		return nil, false, err
	}
	r.machine = machine
	w.replaying, w.timed = len(r.entries) > r.base, false
	differs, is = errors.AsType[*program.Mismatch](machine.Replay(r.entries[r.base:]))
	w.replaying = false
	return differs, is, nil
}

// base32 is a number as a token has it.
func base32(n int) string {
	const digits, letters = 26, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	text := bytes.Repeat([]byte("A"), digits)
	for i := digits - 1; n > 0; i-- {
		text[i] = letters[n%len(letters)]
		n /= len(letters)
	}
	return string(text)
}

// emit completes an event with whose it is.
func (w *world) emit(r *run, e history.Emit) history.Emit {
	e.Organization, e.Workflow, e.Time = 1, r.workflow, w.now
	return e
}

// turn does one thing to a run. By chance the process dies before the turn is stored, so that it is made once more, or right after it.
func (w *world) turn(r *run, do func(program.Machine)) error {
	if w.turns++; w.turns > maxTurns {
		return errOver
	}
	// A replay costs as much as the history is long: the longer it is, the rarer are crashes.
	die := w.chance != nil && w.chance.IntN(4+(len(r.entries)-r.base)/20) == 0
	before := map[history.OpRef]opened{}
	for ref, o := range r.open {
		before[ref] = *o
	}
	do(r.machine)
	if die && w.chance.IntN(2) == 0 {
		w.crashes++
		for ref, o := range before { // nothing of the turn is left but its effects outside
			*r.open[ref] = o
		}
		return w.reopen(r)
	}
	if err := w.commit(r); err != nil || !die || r.ended != "" {
		return err
	}
	w.crashes++
	return w.resume(r)
}

// commit stores what the machine has done.
func (w *world) commit(r *run) error {
	if w.turns++; w.turns > maxTurns {
		return errOver
	}
	entries, emits := r.machine.Take()
	var children []*run
	for _, e := range entries {
		e.Seq, e.At, e.Generation = int64(len(r.entries)+1), w.now, r.generation
		r.entries = append(r.entries, e)
		if e.Event > 0 {
			r.consumed[int(e.Event)] = true
		}
		if e.Kind == history.KindStart && e.Error == nil {
			child, err := r.child(e)
			if err != nil {
				return err
			}
			children = append(children, child)
		}
	}
	if len(r.entries)-r.base > maxEntries {
		return fmt.Errorf("the history has grown past %d entries; call continue_with before the limit", maxEntries)
	}
	for _, e := range emits {
		if e.Answers != "" {
			if key := [2]string{e.Answers, e.ID}; w.replies[key].Value == nil && w.replies[key].Error == "" {
				var answer history.Answer
				if err := json.Unmarshal(e.Data, &answer); err != nil {
					return fmt.Errorf("the answer to %s: %w", e.ID, err)
				}
				w.replies[key] = answer
			}
			continue
		}
		r.sent = append(r.sent, w.emit(r, e))
		if w.c.Outside != nil {
			w.c.Outside.Emitted(w.now, w.emit(r, e))
		}
		w.receive(emitted(w.emit(r, e)))
	}
	for _, child := range children {
		if err := w.start(child); err != nil {
			return err
		}
	}
	ended, failure := r.machine.Outcome()
	if ended {
		return w.end(r, failure)
	}
	w.arrange(r)
	return nil
}

func emitted(e history.Emit) history.Event {
	return history.Event{Organization: 1, Source: event.SourceWorkflow, ID: e.ID, Type: e.Type, Data: e.Data, Time: e.Time}
}

// child is what an entry has started.
func (r *run) child(e history.Entry) (*run, error) {
	var child history.Child
	if err := json.Unmarshal(e.Value, &child); err != nil {
		return nil, fmt.Errorf("the child of %s: %w", e.Op, err)
	}
	source := program.Program{Source: []byte(child.Program), Modules: r.program.Modules}
	if module, is := r.program.Modules[child.Module]; is {
		source.Source = module
	} else if child.Module != "" {
		source.Source = r.program.Source
	}
	return &run{workflow: child.Workflow, program: source, inputs: child.Inputs, parent: r, detached: child.Detached}, nil
}

// end is the end of a run, or of a generation.
func (w *world) end(r *run, failure error) error {
	if n := len(r.entries); failure == nil && n > r.base && r.entries[n-1].Kind == history.KindContinue {
		r.continuation, r.base, r.generation = r.entries[n-1].Value, n, r.generation+1
		r.open = map[history.OpRef]*opened{}
		return w.begin(r)
	}
	kind, eventType := history.KindCompleted, history.TypeCompleted
	data := history.End{Workflow: r.workflow}
	var value any = &data
	if failure == nil && id.IsChildRun(r.workflow) {
		data.Result = r.machine.Result()
	}
	if failure != nil {
		kind, eventType = history.KindFailed, history.TypeFailed
		data.Error = history.Storable(history.Truncate(failure.Error(), history.MaxError))
		r.failure = data.Error
	}
	if cause, is := errors.AsType[*program.Stopped](failure); is && cause.Cancelled {
		kind, eventType, r.failure = history.KindCancelled, history.TypeCancelled, cause.Reason
		value = history.CancelledEnd{Workflow: r.workflow, Reason: cause.Reason}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("the end of the run: %w", err)
	}
	emit := w.emit(r, history.Emit{ID: r.ref + "/" + string(kind), Type: eventType, Data: text})
	if stack := history.StackOf(failure); len(stack) > 0 && kind == history.KindFailed {
		if text, err = json.Marshal(history.Failure{End: data, Stack: stack}); err != nil {
			return fmt.Errorf("the end of the run: %w", err)
		}
	}
	r.entries = append(r.entries, history.Entry{
		Seq: int64(len(r.entries) + 1), Op: history.OpRef{Branch: -1}, Kind: kind, Value: text, At: w.now, Generation: r.generation,
	})
	r.ended, r.open = string(kind), map[history.OpRef]*opened{}
	r.sent = append(r.sent, emit)
	w.receive(emitted(emit))
	for _, other := range w.runs {
		if other.parent == r && !other.detached {
			if err := w.cancel(other, fmt.Sprintf("its parent %q has ended", r.workflow)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) cancel(r *run, reason string) error {
	if r.ended != "" {
		return nil
	}
	r.machine.Stop(program.Stopped{Cancelled: true, Reason: reason})
	return w.commit(r)
}

// arrange opens what branches are blocked on, and forgets what they are no longer blocked on.
func (w *world) arrange(r *run) {
	pending := map[history.OpRef]bool{}
	for _, op := range r.machine.Pending() {
		pending[op.Ref] = true
		if r.open[op.Ref] != nil {
			continue
		}
		o := &opened{due: w.now.Add(w.c.limit(op))}
		if op.Kind == history.KindPoll {
			o.round, o.calling, o.deadline = 1, true, o.due
			o.due = earlier(w.now.Add(w.c.CallTimeout), o.deadline)
		}
		r.open[op.Ref] = o
	}
	for ref := range r.open {
		if !pending[ref] {
			delete(r.open, ref)
		}
	}
}

// limit is how long an operation may take.
func (c Case) limit(op history.Op) time.Duration {
	switch {
	case op.Timeout > 0 || op.Kind == history.KindSleep:
		return op.Timeout
	case op.Kind == history.KindRun:
		return c.CallTimeout
	default:
		return c.WaitTimeout
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// settle lets happen what can happen at this time.
func (w *world) settle() error {
	for moved := true; moved; {
		moved = false
		for i := 0; i < len(w.runs); i++ {
			for r := w.runs[i]; r.ended == ""; {
				progress, err := w.advance(r)
				if err != nil {
					return err
				}
				if !progress {
					break
				}
				moved = true
			}
		}
	}
	return nil
}

// advance lets one thing happen to a run, if something can.
func (w *world) advance(r *run) (bool, error) {
	for _, op := range r.machine.Pending() {
		do := w.possible(r, op)
		if do == nil {
			continue
		}
		return true, w.turn(r, do)
	}
	return false, nil
}

// possible is what can happen to an operation now; nil: nothing.
func (w *world) possible(r *run, op history.Op) func(program.Machine) {
	o := r.open[op.Ref]
	if op.EndOf != "" {
		if end := w.endOf(op.EndOf); end != nil {
			return func(m program.Machine) { m.Complete(history.Completion{Op: op.Ref, Value: end}) }
		}
	} else if wants := op.Wants(); len(wants) > 0 {
		row := w.find(r, wants)
		if row == 0 && w.c.Outside != nil {
			if e, has := w.c.Outside.Next(w.now, wants); has && !e.Time.After(w.now) {
				row = w.arrive(e)
			}
		}
		if row > 0 {
			c := history.Completion{Op: op.Ref, Value: w.events[row-1].Value(), Event: int64(row)}
			return func(m program.Machine) { m.Complete(c) }
		}
	}
	if op.Kind == history.KindPoll {
		return w.poll(r, op, o)
	}
	if op.Kind == history.KindRun {
		if c, answered := w.call(r, op, o); answered {
			return func(m program.Machine) { m.Complete(c) }
		}
	}
	if o.due.After(w.now) {
		return nil
	}
	c := expired(op, w.c.limit(op))
	return func(m program.Machine) { m.Complete(c) }
}

// endOf is the event about the end of a child; nil while it runs.
func (w *world) endOf(workflow string) json.RawMessage {
	for _, r := range w.runs {
		if r.workflow == workflow && r.ended != "" {
			return emitted(r.sent[len(r.sent)-1]).Value()
		}
	}
	return nil
}

// find is the first event that an operation can have.
func (w *world) find(r *run, wants []history.Want) int {
	for i, e := range w.events {
		if i < r.since || r.consumed[i+1] {
			continue
		}
		for _, want := range wants {
			if want.Type == e.Type && want.Filter.Matches(e.Data) {
				return i + 1
			}
		}
	}
	return 0
}

// receive stores an event; one that is stored already changes nothing.
func (w *world) receive(e history.Event) (duplicate bool) {
	key := [2]string{e.Source, e.ID}
	if w.known[key] {
		return true
	}
	w.known[key] = true
	e.Row = int64(len(w.events) + 1)
	w.events = append(w.events, e)
	return false
}
