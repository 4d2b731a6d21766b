package offline

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Outside is what a program acts upon, with a life of its own. at is the time of the test.
type Outside interface {
	// Call carries a Function out, once for each idempotency key. An error that is retryable is not kept: the next attempt asks again.
	Call(at time.Time, function, key string, args json.RawMessage) (json.RawMessage, *history.FunctionError)
	// Emitted receives an event of a program, once.
	Emitted(at time.Time, e history.Emit)
	// Next is the first event, whenever it comes, that something waits for; false for none. Without an id, it gets one of its own.
	Next(at time.Time, wants []history.Want) (history.Event, bool)
	// Arrived reports that this event of Next has reached the organization.
	Arrived(at time.Time, e history.Event)
}

// comes is the next event of the world outside that a run waits for; nil for none.
func (w *world) comes() *history.Event {
	if w.c.Outside == nil {
		return nil
	}
	var wants []history.Want
	for _, r := range w.runs {
		if r.ended == "" {
			for _, op := range r.machine.Pending() {
				wants = append(wants, op.Wants()...)
			}
		}
	}
	e, has := w.c.Outside.Next(w.now, wants)
	if !has {
		return nil
	}
	return &e
}

// arrive stores an event of the world outside, and answers its row.
func (w *world) arrive(e history.Event) int {
	e.Organization = 1
	if e.Source == "" {
		e.Source = sourceOf(e.Type)
	}
	if e.ID == "" {
		e.ID = fmt.Sprintf("event-%d", len(w.events)+1)
	}
	w.c.Outside.Arrived(w.now, e)
	w.receive(e)
	return len(w.events)
}
