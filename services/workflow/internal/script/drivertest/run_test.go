package drivertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
)

// run carries a program to its end. The answer is its failure, "" for none.
func (w *world) run(workflow driver.Workflow, inputs object) string {
	w.t.Helper()
	w.pin(inputs)
	scripts := script.New(script.Limits{})
	p := w.program(workflow)
	in, err := json.Marshal(inputs)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := scripts.Check(p, in); err != nil {
		w.t.Fatal(err)
	}
	open := func(now func() time.Time) program.Machine {
		m, err := scripts.Open(p, in, program.Environment{Ref: "r", Now: now, UUID: w.uuid, Emit: refuse})
		if err != nil {
			w.t.Fatal(err)
		}
		return m
	}
	m := open(func() time.Time { return w.now })
	defer m.Close()
	_ = m.Replay(nil) // a failure is the outcome's too
	since := map[history.OpRef]time.Time{}
	var past []history.Entry
	for turn := 0; ; turn++ {
		entries, emits := m.Take()
		for _, e := range entries {
			e.Seq = int64(len(past) + 1)
			if e.Kind == history.KindPrint {
				w.log = append(w.log, string(e.Value))
			}
			past = append(past, e)
		}
		for _, e := range emits {
			w.emitted(e)
		}
		ended, failure := m.Outcome()
		if turn%7 == 0 && turn < 200 || turn%299 == 0 || ended { // a replay costs as much as the history is long
			w.replay(open, past, m)
		}
		if ended {
			if failure != nil {
				return failure.Error()
			}
			return ""
		}
		if turn > 20_000 {
			w.t.Fatal("the program does not end")
		}
		w.step(m, since)
	}
}

// uuid is another one each time.
func (w *world) uuid() string {
	w.uuids++
	return fmt.Sprintf("uuid-%d", w.uuids)
}

// step completes one operation: a Function if one is called, else the wait or the sleep whose time comes first.
func (w *world) step(m program.Machine, since map[history.OpRef]time.Time) {
	var (
		first history.Completion
		next  time.Time
	)
	for _, op := range m.Pending() {
		if _, known := since[op.Ref]; !known {
			since[op.Ref] = w.now
		}
		if op.Kind == history.KindRun {
			w.complete(m, op)
			return
		}
		due, c := since[op.Ref].Add(op.Timeout), history.Completion{Op: op.Ref, Value: json.RawMessage("null")}
		if e, ok := w.eventFor(op); ok && !e.Time.After(due) {
			due, c.Value, c.Event = e.Time, e.Value(), 1
		}
		if next.IsZero() || due.Before(next) {
			first, next = c, due
		}
	}
	if next.After(w.now) {
		w.now = next
	}
	if first.Event != 0 {
		w.noteWatch(first.Value)
		w.resolved = slices.DeleteFunc(w.resolved, func(e history.Event) bool { return string(e.Value()) == string(first.Value) })
	}
	m.Complete(first)
}

// eventFor is the event that a wait will get.
func (w *world) eventFor(op history.Op) (history.Event, bool) {
	if op.Kind != history.KindWait {
		return history.Event{}, false
	}
	var first history.Event
	found := false
	if slices.Contains(op.Types, agent.TypeRolloutStatusChanged) {
		first, found = w.observed(op)
	}
	for _, e := range w.resolved {
		if slices.Contains(op.Types, e.Type) && op.Filter.Matches(e.Data) && (!found || e.Time.Before(first.Time)) {
			first, found = e, true
		}
	}
	return first, found
}

func (w *world) complete(m program.Machine, op history.Op) {
	var args object
	if err := json.Unmarshal(op.Args, &args); err != nil {
		w.t.Fatal(err)
	}
	value, failure := w.call(op.Name, args)
	c := history.Completion{Op: op.Ref, Error: failure}
	if failure == nil {
		text, err := json.Marshal(value)
		if err != nil {
			w.t.Fatal(err)
		}
		c.Value = text
	}
	m.Complete(c)
}

// replay runs the program anew over its history, with a clock that must not be asked.
func (w *world) replay(open func(func() time.Time) program.Machine, history []history.Entry, m program.Machine) {
	w.t.Helper()
	again := open(func() time.Time {
		w.t.Error("replay asks for the time")
		return time.Time{}
	})
	defer again.Close()
	_, failure := m.Outcome()
	replayed := again.Replay(history)
	if (failure == nil) != (replayed == nil) || (failure != nil && failure.Error() != replayed.Error()) {
		w.t.Fatalf("replay of %d entries ends with %v, the run with %v", len(history), replayed, failure)
	}
	if diff := cmp.Diff(m.Pending(), again.Pending()); diff != "" {
		w.t.Fatalf("replay of %d entries stands elsewhere (-run +replay):\n%s", len(history), diff)
	}
}

// refuse checks what a program emits against the catalogue, as the engine does.
func refuse(id, eventType string, data json.RawMessage) *history.FunctionError {
	e := cloudevents.New()
	e.SetID(id)
	e.SetSource("/services/workflow")
	e.SetType(eventType)
	e.SetExtension(event.ExtensionOrganization, "1")
	if err := e.SetData(cloudevents.ApplicationJSON, data); err != nil {
		return history.AsFunctionError(err)
	}
	if err := event.Validate(e); err != nil {
		return &history.FunctionError{Code: history.CodeInvalid, Message: err.Error()}
	}
	return nil
}

func expect(t *testing.T, w *world, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.story); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}
