package sandbox

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// machine is a run in a child. It caches what the child has reported, so that the child is asked only for what moves the program.
type machine struct {
	scripts *Scripts
	home    *tenement
	session uint64
	env     program.Environment

	// pending are in the order of branches and indexes.
	pending []history.Op
	entries []history.Entry
	emits   []history.Emit
	ended   bool
	ending  bool
	failure error
	result  json.RawMessage
	closed  bool
}

var _ program.Machine = (*machine)(nil)

// Replay starts the program over a history.
func (m *machine) Replay(history []history.Entry) error {
	m.do(request{Do: doReplay, Session: m.session, History: history})
	return m.failure
}

// Pending are the operations that branches are blocked on.
func (m *machine) Pending() []history.Op {
	if m.ended {
		return nil
	}
	return slices.Clone(m.pending)
}

// Complete unblocks an operation.
func (m *machine) Complete(c history.Completion) bool {
	i := slices.IndexFunc(m.pending, func(op history.Op) bool { return op.Ref == c.Op })
	if m.ended || i < 0 {
		return false
	}
	m.pending = slices.Delete(m.pending, i, i+1)
	m.do(request{Do: doComplete, Session: m.session, Completion: &c})
	return true
}

// Stop ends the run from outside.
func (m *machine) Stop(cause program.Stopped) bool {
	if m.ended || m.ending {
		return false
	}
	return m.do(request{Do: doStop, Session: m.session, Stopped: &cause})
}

// Ending reports whether deferred calls are being made.
func (m *machine) Ending() bool { return m.ending }

// Result is what the main of a child returned.
func (m *machine) Result() json.RawMessage { return m.result }

// Take hands out what was recorded since the last Take.
func (m *machine) Take() ([]history.Entry, []history.Emit) {
	entries, emits := m.entries, m.emits
	m.entries, m.emits = nil, nil
	return entries, emits
}

// Outcome reports how the program ended, if it has. A *program.Interrupted is no end.
func (m *machine) Outcome() (bool, error) { return m.ended, m.failure }

// Close gives the run up.
func (m *machine) Close() {
	if m.closed {
		return
	}
	m.closed = true
	if m.ended && m.failure == nil {
		m.scripts.acquit(m.env.Ref)
	}
	if !m.home.single {
		_, _ = m.scripts.places.ask(m.home, request{Do: doClose, Session: m.session}, m.env, m.scripts.patience()) // a dead child holds nothing
	}
	m.scripts.places.quit(m.home)
}

// do moves the program on, and reports whether that has stopped the run.
func (m *machine) do(req request) (stopped bool) {
	req.Bounded = m.env.Asks()
	r, err := m.scripts.places.ask(m.home, req, m.env, m.scripts.patience())
	if err != nil {
		// What it did in this turn is not part of the run: nobody has heard of it.
		m.ended, m.failure = true, m.scripts.judge(m, err)
		return true
	}
	if err := r.Error.error(); err != nil {
		m.ended, m.failure = true, &program.Interrupted{Reason: err.Error()}
		return true
	}
	if len(r.Turn.Withdrawn) > 0 {
		m.pending = slices.DeleteFunc(m.pending, func(op history.Op) bool { return slices.Contains(r.Turn.Withdrawn, op.Ref) })
	}
	m.pending = append(m.pending, r.Turn.Pending...)
	slices.SortFunc(m.pending, func(a, b history.Op) int {
		return cmp.Or(cmp.Compare(a.Ref.Branch, b.Ref.Branch), cmp.Compare(a.Ref.Index, b.Ref.Index))
	})
	if m.env.Asked != nil {
		for _, asked := range r.Turn.Asked {
			m.env.Asked(asked)
		}
	}
	m.entries = append(m.entries, r.Turn.Entries...)
	m.emits = append(m.emits, r.Turn.Emits...)
	m.ended, m.ending, m.failure = r.Turn.Ended, r.Turn.Ending, r.Turn.Failure.error()
	m.result = r.Turn.Result
	return r.Turn.Stopped
}
