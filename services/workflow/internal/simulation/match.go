package simulation

import (
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// eventName identifies an event: a second one with the same name is a duplicate.
func eventName(e history.Event) string {
	return fmt.Sprintf("%d %q %q", e.Organization, e.Source, e.ID)
}

// save stores an event and reports whether it is new.
func (m *Memory) save(e history.Event) (history.Event, bool) {
	if name := eventName(e); m.defect != CountsDuplicates {
		if m.heard[name] {
			return history.Event{}, false
		}
		m.heard[name] = true
	}
	e.Row = int64(len(m.events) + 1)
	m.events = append(m.events, e)
	return e, true
}

func (m *Memory) receive(e history.Event, l *engine.Lease) (matched int, duplicate bool, woken []engine.Woken) {
	stored, isNew := m.save(e)
	if !isNew {
		return 0, true, nil
	}
	woken = m.match([]history.Event{stored}, nil, l)
	return len(woken), false, woken
}

func (m *Memory) send(msg history.Message, l *engine.Lease) (matched int, duplicate bool, woken []engine.Woken, err error) {
	e, err := msg.Event()
	if err != nil {
		return 0, false, nil, err
	}
	if !m.isOpen(msg.Token) {
		if m.heard[eventName(e)] {
			return 0, true, nil, nil
		}
		return 0, false, nil, fault.New(fault.NotFound, "there is no such channel")
	}
	matched, duplicate, woken = m.receive(e, l)
	return matched, duplicate, woken, nil
}

// emit puts events into the outbox, and returns those that are new as waits see them.
func (m *Memory) emit(emits []history.Emit) (emitted []history.Event) {
	if m.defect == EmitsTwice {
		emits = append(emits[:len(emits):len(emits)], emits...)
	}
	for _, e := range emits {
		if answer, is := e.Answer(); is {
			if stored, isNew := m.save(answer); isNew {
				emitted = append(emitted, stored)
			}
			continue
		}
		m.outbox = append(m.outbox, e)
		stored, isNew := m.save(history.Event{
			Organization: e.Organization, Source: event.SourceWorkflow, ID: e.ID, Type: e.Type, Data: e.Data, Time: e.Time,
		})
		if isNew {
			emitted = append(emitted, stored)
		}
	}
	return emitted
}

// match delivers to each wait the earliest event that it matches: new events to all waits, and all events to new waits. A wait gets one
// event, and a run gets each event once (D19).
func (m *Memory) match(added []history.Event, waits []waiting, l *engine.Lease) (woken []engine.Woken) {
	if m.defect == ForgetsEarlyEvents {
		waits = nil
	}
	if len(added) > 0 {
		waits = nil
		for _, e := range m.executions {
			for _, ref := range refs(e.waits) {
				waits = append(waits, waiting{e, ref})
			}
		}
	}
	satisfied := map[*stored][]engine.Arrival{}
	for _, w := range waits {
		if w.execution.State.Ended() || w.execution.deliveries[w.op] != nil {
			continue
		}
		from := m.events
		if m.defect == ForgetsEarlyEvents {
			from = added
		}
		found := w.execution.earliest(w.op, from, m.defect == TrustsEverySource)
		if found == nil {
			continue
		}
		a := engine.Arrival{Op: w.op, Kind: engine.EventArrived, Value: found.Value(), Event: found.Row}
		m.deliver(w.execution, w.op, a)
		satisfied[w.execution] = append(satisfied[w.execution], a)
	}
	for _, e := range m.executions {
		arrived := satisfied[e]
		if len(arrived) == 0 {
			continue
		}
		for _, w := range m.wake(e, l) {
			if len(arrived) == 1 {
				w.Wakeup = &engine.Wakeup{Wakes: e.wakes, Arrival: arrived[0]}
			}
			woken = append(woken, w)
		}
	}
	return woken
}

// earliest is the first of the events that the wait matches, that arrived after the run began and that the run has not consumed; nil for
// none. An event that cannot be of its source is matched only if every source is trusted (D47).
func (e *stored) earliest(op history.OpRef, events []history.Event, trusting bool) *history.Event {
	for _, candidate := range events {
		if candidate.Row <= e.startEvent || e.hasConsumed(candidate.Row) || candidate.Organization != e.Organization ||
			!trusting && !event.Fits(candidate.Type, candidate.Source) {
			continue
		}
		for _, want := range e.waits[op] {
			if want.Type == candidate.Type && want.Filter.Matches(candidate.Data) {
				return &candidate
			}
		}
	}
	return nil
}

// hasConsumed reports whether the run has consumed the event, or is about to.
func (e *stored) hasConsumed(event int64) bool {
	for _, entry := range e.history {
		if entry.Event == event {
			return true
		}
	}
	for _, d := range e.deliveries {
		if d.Event == event {
			return true
		}
	}
	return false
}
