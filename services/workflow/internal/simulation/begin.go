package simulation

import (
	"slices"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// begin is create and the commit of the first turn, unless the execution exists or somebody waits for what the turn emits: then
// nothing happens (internal/store/begin.go).
func (m *Memory) begin(n core.NewExecution, first core.Commit, l *core.Lease) (id int64, yes bool, woken []core.Woken, err error) {
	if m.find(n.Organization, n.Workflow) != nil || slices.ContainsFunc(first.Emits, m.awaits) {
		return 0, false, nil, nil
	}
	if first.Turn != 0 || len(first.Open)+len(first.Closed) > 0 || first.Next == core.Parked || first.Continue != nil {
		m.refuse("%s begins with a turn that cannot be stored with it", n.Workflow)
	}
	m.begun++
	first.Execution.ID = m.create(n).ID
	_, woken, err = m.commit(first, l)
	return first.Execution.ID, true, woken, err
}

// awaits reports whether somebody waits for an event of the type.
func (m *Memory) awaits(emitted core.Emit) bool {
	for _, e := range m.executions {
		for _, wants := range e.waits {
			if slices.ContainsFunc(wants, func(w core.Want) bool { return w.Type == emitted.Type }) {
				return true
			}
		}
	}
	return false
}
