package simulation

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// startChildren stores the children of a turn with it.
func (m *Memory) startChildren(parent *stored, starts []engine.ChildStart) (woken []engine.Woken) {
	for _, start := range starts {
		if c := m.create(start.NewExecution); c.Created {
			child := m.executions[c.ID-1]
			child.parent, child.attached = parent, !start.Detached
			woken = append(woken, engine.Woken{ID: c.ID})
		}
	}
	return woken
}

// plain is the name of a run that is the same in every simulation of a seed: that of a child holds its parent's handle.
func (m *Memory) plain(workflow string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e := m.find(organization, workflow); {
	case e == nil:
		return "a run" // a child that is not stored yet
	case e.parent != nil:
		return fmt.Sprintf("child %d", e.ID)
	default:
		return workflow
	}
}

// orphan marks the children of a run that has ended.
func (m *Memory) orphan(parent *stored) {
	if m.defect == ForgetsChildren {
		return
	}
	for _, e := range m.executions {
		if e.parent == parent && e.attached && !e.State.Ended() {
			e.orphaned = true
		}
	}
}

// cancelOrphans cancels the children of runs that have ended.
func (m *Memory) cancelOrphans(now time.Time, l *engine.Lease) (n int, woken []engine.Woken, err error) {
	for _, e := range m.executions {
		if !e.orphaned {
			continue
		}
		e.orphaned = false
		n++
		const reason = "its parent has ended"
		if sent, again := m.sendCancellation(e.Organization, e.Workflow, reason, l); sent {
			woken = append(woken, again...)
			continue
		}
		ended, id, others, err := m.cancel(e.Organization, e.Workflow, reason, now, l)
		if err != nil {
			return n, woken, err
		}
		if woken = append(woken, others...); ended {
			woken = append(woken, engine.Woken{ID: id})
		}
	}
	return n, woken, nil
}

// cancel ends an execution that has deferred nothing, and lets those know who wait for its end.
func (m *Memory) cancel(organization int64, workflow, reason string, at time.Time, l *engine.Lease) (bool, int64, []engine.Woken, error) {
	ended, id, err := m.end(organization, workflow, execution.Cancelled, history.KindCancelled, reason, at)
	if !ended {
		return false, 0, nil, err
	}
	return true, id, m.match(m.ended, nil, l), nil
}

// endOf is the event about the end of a run.
func (m *Memory) endOf(organization int64, workflow string) json.RawMessage {
	e := m.find(organization, workflow)
	if e == nil || !e.State.Ended() {
		return nil
	}
	kind := history.TypeFailed
	switch e.State {
	case execution.Completed:
		kind = history.TypeCompleted
	case execution.Cancelled:
		kind = history.TypeCancelled
	default: // it has failed
	}
	var last struct {
		Result json.RawMessage `json:"result,omitempty"`
	}
	_ = json.Unmarshal(e.history[len(e.history)-1].Value, &last) // the engine's own
	data, err := json.Marshal(map[string]any{"workflow_id": workflow, "error": e.Error, "reason": e.Error, "result": last.Result})
	if err != nil {
		panic(err) // what was JSON before
	}
	return history.Event{ID: e.Ref, Type: kind, Data: data, Time: e.EndedAt}.Value()
}
