package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// checker looks at a store after every step. It remembers the histories, which may only grow.
type checker struct {
	seen  map[int64][]history.Entry
	wrong []string
}

func (c *checker) violation(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// look checks what holds at every moment.
func (c *checker) look(m *Memory) {
	for _, e := range m.executions {
		c.history(e)
		c.consumed(m, e)
		c.statuses(e)
		switch {
		case e.State == execution.Parked:
			c.parked(e)
		case e.State.Ended():
			c.ended(m, e)
		}
		if !e.State.Ended() {
			c.nothingMissed(m, e)
		}
	}
}

// history has to be what it was, with new entries at its end, numbered without a gap.
func (c *checker) history(e *stored) {
	if c.seen == nil {
		c.seen = map[int64][]history.Entry{}
	}
	before := c.seen[e.ID]
	if len(e.history) < len(before) {
		c.violation("%s: the history had %d entries and has %d", e.Workflow, len(before), len(e.history))
		return
	}
	for i, entry := range e.history {
		if entry.Seq != int64(i+1) {
			c.violation("%s: entry %d has number %d: the history forks or has a gap", e.Workflow, i+1, entry.Seq)
		}
		if i < len(before) && (before[i].Op != entry.Op || before[i].Kind != entry.Kind || !bytes.Equal(before[i].Value, entry.Value)) {
			c.violation("%s: entry %d was %s of %s and is %s of %s", e.Workflow, i+1, before[i].Kind, before[i].Op, entry.Kind, entry.Op)
		}
	}
	if len(e.history) == len(before) {
		return
	}
	// An operation of a generation has one entry. Those that end a run have no operation.
	type operation struct {
		generation int
		op         history.OpRef
	}
	done := map[operation]bool{}
	for _, entry := range e.history {
		if done[operation{entry.Generation, entry.Op}] && entry.Op.Branch >= 0 {
			c.violation("%s: operation %s of generation %d is recorded twice", e.Workflow, entry.Op, entry.Generation)
		}
		done[operation{entry.Generation, entry.Op}] = true
	}
	c.seen[e.ID] = slices.Clone(e.history)
}

// statuses are those that the history says, whatever the generation that has recorded them.
func (c *checker) statuses(e *stored) {
	want := map[string]string{}
	for _, entry := range e.history {
		if entry.Kind == history.KindStatus {
			want[entry.Name] = string(entry.Value)
		}
	}
	if !maps.Equal(want, e.statuses) {
		c.violation("%s reports %v, and its history says %v", e.Workflow, e.statuses, want)
	}
}

// consumed checks that a run consumes each event once, none that came before it, and none from a source that cannot emit its type.
func (c *checker) consumed(m *Memory, e *stored) {
	seen := map[int64]bool{}
	names := map[string]bool{}
	for _, entry := range e.history {
		if entry.Event == 0 {
			continue
		}
		consumed := m.events[entry.Event-1]
		if seen[entry.Event] || names[eventName(consumed)] {
			c.violation("%s: event %s is consumed twice", e.Workflow, consumed.ID)
		}
		seen[entry.Event], names[eventName(consumed)] = true, true
		if entry.Event <= e.startEvent {
			c.violation("%s: event %s came before the run and is consumed", e.Workflow, consumed.ID)
		}
		if !event.Fits(consumed.Type, consumed.Source) {
			c.violation("%s: event %s of type %s is forged and is consumed", e.Workflow, consumed.ID, consumed.Type)
		}
	}
}

// parked runs wait for something that exists, and nothing has come for them.
func (c *checker) parked(e *stored) {
	if len(e.deliveries) > 0 {
		c.violation("%s is parked, and something has come for it", e.Workflow)
	}
	if e.owner != nil {
		c.violation("%s is parked and owned", e.Workflow)
	}
	waiting := false
	for _, t := range e.timers {
		if t.fired {
			c.violation("%s is parked, and a timer of it has fired", e.Workflow)
		}
		waiting = waiting || !t.fired
	}
	if !waiting {
		c.violation("%s is parked and waits for nothing", e.Workflow)
	}
	for ref := range e.waits {
		if e.timers[ref] == nil {
			c.violation("%s: the wait %s has no timer", e.Workflow, ref)
		}
	}
	for ref := range e.calls {
		if e.timers[ref] == nil {
			c.violation("%s: the call %s has no timer", e.Workflow, ref)
		}
	}
}

// ended runs have nothing open.
func (c *checker) ended(m *Memory, e *stored) {
	if left := len(e.timers) + len(e.waits) + len(e.calls) + len(e.polls) + len(e.deliveries); left > 0 {
		c.violation("%s has ended, and %d things of it are left", e.Workflow, left)
	}
	for token, owner := range m.channels {
		if owner == e {
			c.violation("%s has ended, and its channel %s is open", e.Workflow, token)
		}
	}
	if last := e.history[len(e.history)-1]; last.Op.Branch >= 0 {
		c.violation("%s has ended with entry %s", e.Workflow, last.Kind)
	}
}

// nothingMissed checks that no wait is open while the store has an event that it matches and that the run has not consumed.
func (c *checker) nothingMissed(m *Memory, e *stored) {
	for _, ref := range refs(e.waits) {
		if e.deliveries[ref] != nil {
			continue
		}
		if missed := e.earliest(ref, m.events, false); missed != nil {
			c.violation("%s: wait %s was not given event %s, which is stored", e.Workflow, ref, missed.ID)
		}
	}
}

// finish checks what has to hold when all runs have ended.
func (c *checker) finish(m *Memory, w *world) {
	sent := map[string]int{}
	for _, emit := range m.outbox {
		sent[emit.ID]++
	}
	for _, e := range m.executions {
		if !e.State.Ended() {
			c.violation("%s has not ended", e.Workflow)
		}
		for _, entry := range e.history {
			handle := history.Handle(e.Ref, 1, entry.Generation)
			key := history.ActivityID(handle, entry.Op)
			switch {
			case entry.Op.Branch < 0:
				if id := handle + "/" + string(entry.Kind); sent[id] != 1 {
					c.violation("%s: its end was reported %d times", e.Workflow, sent[id])
				}
				delete(sent, handle+"/"+string(entry.Kind))
			case entry.Kind == history.KindEmit:
				if sent[key] != 1 {
					c.violation("%s: the event of %s left %d times", e.Workflow, entry.Op, sent[key])
				}
				delete(sent, key)
			case entry.Kind == history.KindRun && entry.Error == nil && entry.Name != (checkpoint{}).Name(): // which does nothing in the world
				if done, known := w.effects[key]; !known || !bytes.Equal(done.answer, entry.Value) {
					c.violation("%s: %s is recorded with %s, and the world answered %s", e.Workflow, entry.Op, entry.Value, done.answer)
				}
			}
		}
	}
	c.answers(m)
	for id := range sent {
		c.violation("event %s left, and no history has it", id)
	}
	if w.running != 0 {
		c.violation("%d Functions outlive their runs", w.running)
	}
}

// answers checks that each answer that a history holds is stored once, and no other.
func (c *checker) answers(m *Memory) {
	recorded, stored := 0, 0
	for _, e := range m.executions {
		for _, entry := range e.history {
			if entry.Kind == history.KindReply {
				recorded++
			}
		}
	}
	for _, e := range m.events {
		if strings.HasSuffix(e.Source, "/answers") {
			stored++
		}
	}
	if recorded != stored {
		c.violation("the histories have %d answers to calls, and %d are stored", recorded, stored)
	}
}

// standing says where the runs stand, for a report.
func (c *checker) standing(m *Memory) string {
	var all []string
	for _, e := range m.executions {
		all = append(all, fmt.Sprintf("%s %s, %d entries, owner %v, timers %v, waits %v, calls %v, deliveries %v",
			e.Workflow, e.State, len(e.history), e.owner, refs(e.timers), refs(e.waits), refs(e.calls), refs(e.deliveries)))
	}
	return strings.Join(all, "; ")
}
