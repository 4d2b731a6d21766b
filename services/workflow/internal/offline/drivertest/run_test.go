package drivertest

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	functions "github.com/lockstep-cd/lockstep/services/workflow/internal/function"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// run carries a program to its end. The answer is its failure, "" for none.
func (w *world) run(workflow driver.Workflow, inputs object) string {
	w.t.Helper()
	_, failure := w.play(workflow, inputs, nil)
	return failure
}

// play is run with what is done to it at first; it answers how the run ended as well.
func (w *world) play(workflow driver.Workflow, inputs object, steps []offline.Action) (state, failure string) {
	w.t.Helper()
	w.pin(inputs)
	in, err := json.Marshal(inputs)
	if err != nil {
		w.t.Fatal(err)
	}
	seed := w.seed
	if seed == 0 {
		seed = seedOf(w.t)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("with the crashes of seed %d; -drivertest.seed=%d repeats it", seed, seed)
		}
	})
	played, err := offline.Play(offline.Case{
		Program: w.program(workflow), Inputs: in, Outside: outside{w}, Steps: steps, Begins: w.now,
		CallTimeout: time.Hour, WaitTimeout: 365 * 24 * time.Hour, Patient: w.patient,
	}, seed, refuse)
	if err != nil {
		w.t.Fatalf("seed %d: %v", seed, err)
	}
	if played.State == "waiting" {
		w.t.Fatalf("seed %d: the program does not end", seed)
	}
	w.now = played.At
	for _, e := range played.Entries {
		if e.Kind == history.KindPrint {
			w.log = append(w.log, string(e.Value))
		}
	}
	return played.State, played.Failure
}

// outside is the world as the harness of tests has it.
type outside struct{ w *world }

// Call implements offline.Outside.
func (o outside) Call(at time.Time, function, _ string, encoded json.RawMessage) (json.RawMessage, *history.FunctionError) {
	o.w.now = at
	var args object
	if err := json.Unmarshal(encoded, &args); err != nil {
		o.w.t.Fatal(err)
	}
	value, failure := o.w.call(function, args)
	if failure != nil {
		if err := functions.CheckCode(function, failure.Code); err != nil {
			o.w.t.Errorf("%s: %v", function, err)
		}
		return nil, failure
	}
	text, err := json.Marshal(value)
	if err != nil {
		o.w.t.Fatal(err)
	}
	return text, nil
}

// Emitted implements offline.Outside.
func (o outside) Emitted(at time.Time, e history.Emit) {
	o.w.now = at
	o.w.emitted(e)
}

// Next implements offline.Outside.
func (o outside) Next(at time.Time, wants []history.Want) (first history.Event, found bool) {
	o.w.now = at
	for _, want := range wants {
		if o.w.wanted != nil {
			o.w.wanted(want)
		}
		if e, ok := o.w.eventFor(want); ok && (!found || e.Time.Before(first.Time)) {
			first, found = e, true
		}
	}
	return first, found
}

// Arrived implements offline.Outside.
func (o outside) Arrived(_ time.Time, arrived history.Event) {
	o.w.noteWatch(arrived.Value())
	o.w.resolved = slices.DeleteFunc(o.w.resolved, func(e history.Event) bool {
		return e.Type == arrived.Type && e.Time.Equal(arrived.Time) && string(e.Data) == string(arrived.Data)
	})
}

// eventFor is the event that a wait will get.
func (w *world) eventFor(want history.Want) (history.Event, bool) {
	var first history.Event
	found := false
	if want.Type == agent.TypeRolloutStatusChanged || w.argo != nil && want.Type == agent.TypeObjectChanged {
		first, found = w.observed(want)
	}
	for _, e := range w.resolved {
		if want.Type == e.Type && want.Filter.Matches(e.Data) && (!found || e.Time.Before(first.Time)) {
			first, found = e, true
		}
	}
	return first, found
}

// refuse checks what a program emits against the catalogue, as the engine does.
func refuse(emit history.Emit) *history.FunctionError {
	e := cloudevents.New()
	e.SetID(emit.ID)
	e.SetSource("/services/workflow")
	e.SetType(emit.Type)
	e.SetExtension(event.ExtensionOrganization, "1")
	if err := e.SetData(cloudevents.ApplicationJSON, emit.Data); err != nil {
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
