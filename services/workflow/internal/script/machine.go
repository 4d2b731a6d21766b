package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// entryPoint is the function that is called after the top level, if the program defines it.
const entryPoint = "main"

// machine is one run of a program. See the package comment for its order of events.
type machine struct {
	limits   Limits
	debugger *Debugger
	program  *compiled
	env      program.Environment
	inputs   starlark.StringDict
	entry    entry
	modules  map[string]*module

	// history is what is being replayed, and replayed how much of it has been.
	history  []history.Entry
	replayed int

	// branches are all ever started, by number; ready are those that can run, first come first served. Nothing else
	// may put a branch into ready than its start, a completion and the end of one that it gathers: replay depends on
	// it.
	branches []*branch
	ready    []*branch
	// queue is the place of ready where that is short.
	queue [1]*branch
	// entries and emits wait for the next Take. What is replayed adds none: it is stored.
	entries []history.Entry
	emits   []history.Emit
	prints  int
	// length counts the entries that the program has been handed or has caused, in this generation.
	length int
	// recorded counts the operations answered on the spot since the last completion.
	recorded int

	// resuming is set if the history which is replayed was recorded before: what it does not hold, an earlier program has not done.
	// patches are the answers of patched.
	resuming bool
	patches  map[string]bool

	// deferred are the calls to make at the end, in the order in which they were deferred; entered is set once the top level is over.
	deferred []*deferred
	entered  bool
	// cleaning is set if they are being made, and outcome is how the run has ended. continued is set if the next generation begins instead.
	cleaning  bool
	outcome   error
	continued bool

	// children are the ids that the program has given to children of this generation, started counts those since the last completion,
	// and parent is set if there are some that end with the run. result is what the main of a child returned.
	children map[string]bool
	started  int
	parent   bool
	result   json.RawMessage
	// statuses are the keys that set_status has given values.
	statuses map[string]bool
	// calls are the messages of this generation that were received and wait for an answer.
	calls map[call]bool

	// beyond is set once the program continues after the end of its history; reported counts the bytes of arguments that were passed to Asked.
	beyond   bool
	reported int

	// failure is the first one. What other branches do after it is not part of the run.
	ended   bool
	failure error
}

// Open prepares a run.
func (s *Scripts) Open(p program.Program, inputs []byte, env program.Environment) (program.Machine, error) {
	compiled, globals, entry, err := s.prepare(p, inputs)
	if err == nil && env.Continuation != nil {
		entry, err = s.resumed(env.Continuation)
	}
	if err != nil {
		return nil, err
	}
	return &machine{
		limits: s.limits, debugger: s.debugger, program: compiled, env: env, inputs: globals, entry: entry,
		modules: map[string]*module{}, parent: entry.parent,
		statuses: entry.statuses(),
	}, nil
}

// Replay starts the program over a history.
func (m *machine) Replay(entries []history.Entry) error {
	m.history, m.resuming = history.Results(entries), len(entries) > 0 || m.env.Begun
	m.start(m.runProgram)
	m.settle()
	for m.failure == nil && !m.ended && m.replayed < len(m.history) {
		e := m.history[m.replayed]
		if cause, is := stopped(e); is && !m.cleaning {
			m.stop(cause)
			continue
		}
		b := m.branch(e.Op.Branch)
		if b == nil || b.pending == nil || b.pending.Ref != e.Op {
			m.failure = m.unasked(e, b)
			break
		}
		if err := m.fits(e, *b.pending); err != nil {
			m.failure = err
			break
		}
		m.replayed++
		m.length++
		b.replayed = true
		m.resume(b, history.Completion{Op: e.Op, Value: e.Value, Error: e.Error, Event: e.Event})
	}
	// The program has ended or failed where the recorded one continued.
	if _, isMismatch := errors.AsType[*program.Mismatch](m.failure); !isMismatch && m.replayed < len(m.history) {
		m.failure = m.unasked(m.history[m.replayed], nil)
	}
	m.ended = m.ended || m.failure != nil
	// What comes now is new, also to those who read messages about it.
	m.history, m.replayed, m.resuming = nil, 0, false
	for _, b := range m.branches {
		if b.pending != nil {
			b.pending.Position = m.position(b.pending.Ref)
		}
	}
	return m.failure
}

// Pending are the operations that branches are blocked on.
func (m *machine) Pending() []history.Op {
	if m.ended {
		return nil
	}
	var ops []history.Op
	for _, b := range m.branches {
		if b.pending != nil {
			ops = append(ops, *b.pending)
		}
	}
	return ops
}

// Complete unblocks an operation and records its completion.
func (m *machine) Complete(c history.Completion) bool {
	b := m.branch(c.Op.Branch)
	if m.ended || b == nil || b.pending == nil || b.pending.Ref != c.Op {
		return false
	}
	c = readable(*b.pending, c)
	// Whether a value ends a poll is for the program to say (observe).
	if b.pending.Kind != history.KindPoll || c.Error != nil {
		m.record(*b.pending, c)
	}
	b.replayed = false
	m.resume(b, c)
	return true
}

// readable is a completion whose value this program can read. One that it cannot, which was stored before the doors had limits, is an
// error of this operation and of no other: it is recorded as that, with the event that it came with, so the next wait is for another.
func readable(op history.Op, c history.Completion) history.Completion {
	if c.Value == nil || c.Error != nil {
		return c
	}
	_, err := decode(c.Value)
	if err == nil {
		return c
	}
	what := "the answer of " + op.Name
	if c.Event > 0 {
		var event struct{ ID, Source, Type string }
		_ = json.Unmarshal(c.Value, &event) // what cannot be read is not named
		what = fmt.Sprintf("the event %.255q of type %.255q from %.255q", event.ID, event.Type, event.Source)
		if event.Type == history.TypeMessage {
			what = fmt.Sprintf("the message %.255q", event.ID) // its source holds the token
		}
	}
	c.Value, c.Error = nil, &history.FunctionError{Code: history.CodeUnreadable, Message: fmt.Sprintf("%s cannot be read: %s", what, err)}
	return c
}

// Take hands out what was recorded since the last Take.
func (m *machine) Take() ([]history.Entry, []history.Emit) {
	entries, emits := m.entries, m.emits
	m.entries, m.emits = nil, nil
	return entries, emits
}

// Outcome reports how the program ended, if it has.
func (m *machine) Outcome() (bool, error) { return m.ended, m.failure }

// Close unwinds every branch that is still blocked.
func (m *machine) Close() {
	m.ended = true
	for _, b := range m.branches {
		b.stop()
	}
}

// resume hands a completion to its branch and lets everything run that can.
func (m *machine) resume(b *branch, c history.Completion) {
	b.pending, b.completion = nil, c
	m.recorded, m.started = 0, 0
	m.ready = append(m.ready, b)
	m.settle()
}

// settle runs branches, one at a time and in the order in which they became able to, until all of them block. What a run has deferred
// is called when that is its end.
func (m *machine) settle() {
	m.advance()
	if m.beginCleanup() {
		m.advance()
	}
}

func (m *machine) advance() {
	for len(m.ready) > 0 && m.failure == nil {
		b := m.ready[0]
		if m.ready = m.ready[1:]; len(m.ready) == 0 {
			m.ready = m.queue[:0] // mostly one branch is ready at a time: its place is used again
		}
		if b.done {
			continue // it was given up
		}
		b.step()
		if errors.Is(b.err, errContinued) {
			m.ended, m.continued = true, true // well, and no other branch is left
			return
		}
		if b.holds(b.err) {
			continue
		}
		// Where print has set the failure, the branch's own error only says that it was cancelled.
		if mismatch, ok := errors.AsType[*program.Mismatch](b.err); ok {
			m.failure = mismatch
		} else if m.failure == nil {
			m.failure = b.err
		}
	}
	if m.failure != nil {
		m.ended = true
		return
	}
	done, blocked := true, false
	for _, b := range m.branches {
		done = done && b.done
		blocked = blocked || b.pending != nil
	}
	if m.ended = done; done && m.cleaning {
		m.failure = m.outcome
	}
	if !done && !blocked {
		m.ended = true
		m.failure = m.deadlock()
	}
}

// deadlock says which branches wait for which. All that have not ended do.
func (m *machine) deadlock() error {
	const shown = 5
	var waits []string
	for _, b := range m.branches {
		if b.done {
			continue
		}
		if len(waits) == shown {
			waits = append(waits, "…")
			break
		}
		waits = append(waits, fmt.Sprintf("branch %d at %s for branch %d", b.number, position(b.thread), b.joined.number))
	}
	return fmt.Errorf("every branch waits for another branch; none can continue: %s", strings.Join(waits, ", "))
}

func (m *machine) branch(number int) *branch {
	if number < 0 || number >= len(m.branches) {
		return nil
	}
	return m.branches[number]
}

// record makes the entry of a completed operation. Seq and time are the engine's to give.
func (m *machine) record(op history.Op, c history.Completion) {
	m.length++
	m.entries = append(m.entries, history.Entry{
		Op: op.Ref, Kind: op.Kind, Name: op.Name, Hash: op.Hash, Value: c.Value,
		Error: c.Error, Event: c.Event,
	})
}

// immediate answers an operation that does not block: from the history while there is some, else by answer. answer may
// touch nothing but the machine: when the turn is not committed, it is asked again.
func (m *machine) immediate(op history.Op, answer func() history.Completion) (history.Completion, error) {
	if m.recorded++; m.recorded > m.limits.Ops {
		return history.Completion{}, &limitError{fmt.Sprintf("more than %d operations without waiting", m.limits.Ops)}
	}
	if m.replayed < len(m.history) {
		e := m.history[m.replayed]
		if e.Op != op.Ref {
			return history.Completion{}, &program.Mismatch{
				Seq: e.Seq, Position: m.position(op.Ref), Call: op.Ref,
				Differs: fmt.Sprintf("the history continues with %s of call %s, the program with %s", title(e.Kind, e.Name), e.Op,
					title(op.Kind, op.Name)),
			}
		}
		if err := m.fits(e, op); err != nil {
			return history.Completion{}, err
		}
		m.replayed++
		m.length++
		return history.Completion{Op: e.Op, Value: e.Value, Error: e.Error}, nil
	}
	m.beyond = true
	c := answer()
	m.record(op, c)
	return c, nil
}

// fits compares what was recorded with what the program asks for at the same place. A difference is never guessed
// around: to continue would give one program the results of another (D34).
func (m *machine) fits(e history.Entry, op history.Op) error {
	if e.Kind == op.Kind && e.Name == op.Name && (e.Hash == op.Hash || op.Hash == 0 && m.env.Opaque != nil) {
		return nil
	}
	differs := fmt.Sprintf("recorded %s, now %s", title(e.Kind, e.Name), title(op.Kind, op.Name))
	if e.Kind == op.Kind && e.Name == op.Name {
		differs = fmt.Sprintf("the arguments of %s are not those recorded (digest %016x, recorded %016x)",
			title(op.Kind, op.Name), op.Hash, e.Hash)
	}
	return &program.Mismatch{Seq: e.Seq, Position: m.position(op.Ref), Call: op.Ref, Differs: differs}
}

// reportAsked reports an operation to the observer of the replay.
func (m *machine) reportAsked(b *branch, ref history.OpRef, args []byte) {
	if m.env.Asked == nil || m.beyond {
		return
	}
	asked := program.Asked{Op: ref, Position: position(b.thread), After: m.length, Parent: -1}
	if b.parent != nil {
		asked.Parent = b.parent.number
	}
	given := args[:min(len(args), program.MaxInput)]
	if m.reported+len(given) > program.MaxInputs {
		given = nil
	}
	m.reported += len(given)
	asked.Input, asked.Cut = strings.ToValidUTF8(string(given), ""), len(given) < len(args)
	m.env.Asked(asked)
}

// nextSeq is the number of the entry that is replayed next; 0 where none is left.
func (m *machine) nextSeq() int64 {
	if m.replaying() {
		return m.history[m.replayed].Seq
	}
	return 0
}

// replaying reports whether there is history left.
func (m *machine) replaying() bool { return m.replayed < len(m.history) }

// position is where a branch stands that has just asked for an operation, or is blocked on it.
func (m *machine) position(ref history.OpRef) string { return position(m.branches[ref.Branch].thread) }

// unasked is the mismatch of an entry that no branch is blocked on.
func (m *machine) unasked(e history.Entry, b *branch) error {
	mismatch := &program.Mismatch{
		Seq: e.Seq, Call: e.Op,
		Differs: "the history holds " + title(e.Kind, e.Name) + ", which the program did not ask for",
	}
	if b != nil && b.pending != nil {
		mismatch.Position = m.position(b.pending.Ref)
		mismatch.Differs = fmt.Sprintf("the history holds %s of call %s, the program asks for %s of call %s",
			title(e.Kind, e.Name), e.Op, title(b.pending.Kind, b.pending.Name), b.pending.Ref)
	}
	return mismatch
}

func title(kind history.Kind, name string) string {
	return strings.TrimSpace(string(kind) + " " + name)
}
