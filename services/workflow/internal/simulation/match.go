package simulation

import (
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// eventName is what an event is known by: the same again is a duplicate.
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
	if m.channels[msg.Token] == nil {
		if m.heard[eventName(e)] {
			return 0, true, nil, nil
		}
		return 0, false, nil, fault.New(fault.NotFound, "there is no such channel")
	}
	matched, duplicate, woken = m.receive(e, l)
	return matched, duplicate, woken, nil
}

// emit puts events into the outbox, and answers them as waits see them.
func (m *Memory) emit(emits []history.Emit) (told []history.Event) {
	if m.defect == EmitsTwice {
		emits = append(emits[:len(emits):len(emits)], emits...)
	}
	for _, e := range emits {
		m.outbox = append(m.outbox, e)
		stored, isNew := m.save(history.Event{
			Organization: e.Organization, Source: "/workflow", ID: e.ID, Type: e.Type, Data: e.Data, Time: e.Time,
		})
		if isNew {
			told = append(told, stored)
		}
	}
	return told
}

// match hands waits the earliest event that each matches: new events to all waits, new waits all events. A wait has one event
// and a run each event once (D19).
func (m *Memory) match(told []history.Event, waits []waiting, l *engine.Lease) (woken []engine.Woken) {
	if m.defect == ForgetsEarlyEvents {
		waits = nil
	}
	if len(told) > 0 {
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
			from = told
		}
		event, found := w.execution.earliest(w.op, from)
		if !found {
			continue
		}
		a := engine.Arrival{Op: w.op, Kind: engine.EventArrived, Value: event.Value(), Event: event.Row}
		m.deliver(w.execution, w.op, a)
		satisfied[w.execution] = append(satisfied[w.execution], a)
	}
	for _, e := range m.executions {
		came := satisfied[e]
		if len(came) == 0 {
			continue
		}
		for _, w := range m.wake(e, l) {
			if len(came) == 1 {
				w.Came = &engine.Came{Wakes: e.wakes, Arrival: came[0]}
			}
			woken = append(woken, w)
		}
	}
	return woken
}

// earliest is the first of the events that the wait matches, that came after the run began and that the run has not had.
func (e *stored) earliest(op history.OpRef, events []history.Event) (history.Event, bool) {
	for _, event := range events {
		if event.Row <= e.startEvent || e.had(event.Row) || event.Organization != e.Organization {
			continue
		}
		for _, want := range e.waits[op] {
			if want.Type == event.Type && want.Filter.Matches(event.Data) {
				return event, true
			}
		}
	}
	return history.Event{}, false
}

// had reports whether the run has consumed the event, or is about to.
func (e *stored) had(event int64) bool {
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
