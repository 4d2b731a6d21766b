package script

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"strings"

	"go.starlark.net/starlark"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// branch is one line of execution: a coroutine that runs Starlark until a builtin blocks it.
type branch struct {
	machine *machine
	// number counts branches in the order of spawning, ops the operations so far. Together they are the next OpRef.
	number int
	thread *starlark.Thread
	ops    int

	// The two ends of the coroutine: the machine calls next and stop, the branch's own code calls yield.
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	// deciding is set while the condition of a poll is being evaluated, replayed if completion comes from the history.
	deciding, replayed bool

	// pending is the operation that blocks the branch; nil while it runs or waits for another branch.
	// It always points at asked, which is reused.
	pending    *history.Op
	asked      history.Op
	completion history.Completion

	// parent and spawned are the call of spawn that has made the branch; nil for the first one.
	parent  *branch
	spawned starlark.CallFrame

	// home is the scope that the branch was spawned in, nil for the run itself; scope is the innermost that it is in now.
	home, scope *scope

	// value and err are set once done is. joiners are the branches that gather this one.
	done    bool
	value   starlark.Value
	err     error
	joiners []*branch
	// joined is the branch that this one waits for in gather.
	joined *branch
}

// errClosed unwinds a branch whose machine is given up. Programs cannot catch it.
var errClosed = errors.New("the run is given up")

// PanicError is a panic inside the interpreter or a builtin: it fails the one run.
type PanicError struct {
	// Value is what panic was called with.
	Value any
	Stack []byte
}

// Error does not show the stack, which differs between processes.
func (e *PanicError) Error() string { return fmt.Sprintf("internal error: %v", e.Value) }

// StackTrace is where it happened, for the log.
func (e *PanicError) StackTrace() []byte { return e.Stack }

// start makes a branch that will run body. It is a coroutine, not a concurrently running goroutine: one branch runs at
// a time, so nothing in this package needs a lock, and the order of branches does not depend on the scheduler.
func (m *machine) start(body func(*starlark.Thread) (starlark.Value, error)) *branch {
	b := &branch{machine: m, number: len(m.branches)}
	b.thread = m.thread(fmt.Sprintf("branch %d", b.number))
	b.thread.SetLocal(branchKey, b)
	b.thread.Print = b.print
	b.next, b.stop = iter.Pull(func(yield func(struct{}) bool) {
		b.yield = yield
		// iter.Pull would pass the panic on to the next caller. It fails this run, and no other in the process.
		defer func() {
			if r := recover(); r != nil {
				b.err = &PanicError{Value: r, Stack: debug.Stack()}
			}
		}()
		value, err := body(b.thread)
		b.value, b.err = value, b.trace(locate(err))
	})
	m.branches = append(m.branches, b)
	m.ready = append(m.ready, b)
	return b
}

// step runs the branch until it blocks or ends.
func (b *branch) step() {
	// The budget is for the way to the next wait, so a program that lives for weeks does not use it up.
	b.thread.SetMaxExecutionSteps(b.thread.ExecutionSteps() + b.machine.limits.Steps)
	if _, blocked := b.next(); blocked {
		return
	}
	b.done = true
	// In the order in which they began to wait: it is part of what replay repeats.
	b.machine.ready = append(b.machine.ready, b.joiners...)
	b.joiners = nil
}

// wait blocks the branch until the machine steps it again.
func (b *branch) wait() error {
	if !b.yield(struct{}{}) {
		return errClosed
	}
	return nil
}

// block waits for an operation's completion.
func (b *branch) block(op history.Op) (history.Completion, error) {
	b.asked = op
	b.pending = &b.asked
	if err := b.wait(); err != nil {
		return history.Completion{}, err
	}
	return b.completion, nil
}

// join waits for another branch's end.
func (b *branch) join(other *branch) error {
	for !other.done {
		if err := b.meet(other); err != nil {
			return err
		}
	}
	return other.err // of a branch of a scope, else the run has failed with it
}

// await waits for another branch's end, whatever its outcome, or for what else the branch is blocked on.
func (b *branch) await(other *branch) error {
	blocked := b.pending != nil
	for !other.done {
		if err := b.meet(other); err != nil {
			return err
		}
		if blocked && b.pending == nil {
			return nil
		}
	}
	return nil
}

// meet has the other branch's end make this one able to run.
func (b *branch) meet(other *branch) error {
	b.joined = other
	other.joiners = append(other.joiners, b)
	return b.wait()
}

// op numbers an operation and fingerprints it. args are its canonical arguments. They alone, with kind and name,
// decide whether a history fits, so how they are encoded must never change.
func (b *branch) op(kind history.Kind, name string, args []byte) history.Op {
	ref := history.OpRef{Branch: b.number, Index: b.ops}
	b.ops++
	text := make([]byte, 0, 256)
	text = append(append(text, kind...), 0)
	text = append(append(text, name...), 0)
	sum := sha256.Sum256(append(text, args...))
	op := history.Op{Ref: ref, Kind: kind, Name: name, Hash: binary.BigEndian.Uint64(sum[:])}
	if opaque := b.machine.env.Opaque; opaque != nil && opaque(args) {
		op.Hash = 0
	}
	b.machine.debugger.asked(b, ref)
	b.machine.reportAsked(b, ref, args)
	if !b.machine.replaying() {
		op.Position = position(b.thread) // else it is asked for when it is needed
	}
	return op
}

// print records a line, or drops it when there were too many.
func (b *branch) print(_ *starlark.Thread, line string) {
	// Lines are counted while replaying as well, so that the limit falls on the same one.
	m := b.machine
	if b.deciding {
		return // it would have to be printed at a replay, too
	}
	m.prints++
	switch {
	case m.prints > m.limits.Prints:
		return
	case m.prints == m.limits.Prints:
		line = "… further lines are not kept"
	case len(line) > m.limits.PrintLine:
		line = line[:m.limits.PrintLine] + history.Cut // perhaps in the middle of a character
	}
	text, err := encode(starlark.String(line), m.limits.Value)
	marked := text
	if err != nil {
		// The fingerprint is that of histories in which such a line was dropped.
		marked = []byte(`"(not UTF-8)"`)
		if text, err = encode(starlark.String(strings.ToValidUTF8(line, "\ufffd")), m.limits.Value); err != nil {
			text = marked
		}
	}
	op := b.op(history.KindPrint, "", marked)
	if _, err := m.immediate(op, func() history.Completion { return history.Completion{Op: op.Ref, Value: text} }); err != nil {
		b.thread.Cancel(err.Error()) // print cannot fail, but the program must not continue
		if _, mismatch := errors.AsType[*program.Mismatch](err); mismatch || !m.cleaning {
			m.failure = err
		}
	}
}
