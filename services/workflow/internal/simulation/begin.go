package simulation

import (
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
)

// begin is create and the commit of the first turn, unless the execution exists: then nothing happens (internal/store/begin.go).
func (m *Memory) begin(n engine.NewExecution, first engine.Commit, l *engine.Lease) (id int64, yes bool, woken []engine.Woken, err error) {
	if m.find(n.Organization, n.Workflow) != nil {
		return 0, false, nil, nil
	}
	if first.Turn != 0 || len(first.Open)+len(first.Closed) > 0 || first.Next == execution.Parked || first.Continue != nil {
		m.refuse("%s begins with a turn that cannot be stored with it", n.Workflow)
	}
	m.begun++
	first.Execution.ID = m.create(n).ID
	_, woken, err = m.commit(first, l)
	return first.Execution.ID, true, woken, err
}
