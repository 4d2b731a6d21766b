package workflow_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/flow"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script/scripttest"
)

// unreadable are data that no program can read, as an engine without limits at its doors has stored them.
func unreadable() map[string]json.RawMessage {
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	return map[string]json.RawMessage{
		"a number out of range":  json.RawMessage(`{"n": 1, "x": 1e400}`),
		"values nested too deep": json.RawMessage(`{"n": 1, "x": ` + deep + `}`),
	}
}

// stored puts an event into the store, past the doors.
func (e *engines) stored(id string, data json.RawMessage) {
	e.t.Helper()
	tick := history.Event{Organization: 1, Source: "/test", ID: id, Type: scripttest.Tick, Data: data, Time: clock.System().Now()}
	if _, _, err := e.store.Receive(e.t.Context(), tick); err != nil {
		e.t.Fatal(err)
	}
}

// TestAnUnreadableEventFailsTheWaitThatMeetsIt covers what was stored before the doors had limits: the wait that meets it fails and
// says which event it was, also after another process has taken over, and a retry waits for the next one.
func TestAnUnreadableEventFailsTheWaitThatMeetsIt(t *testing.T) {
	t.Parallel()
	for name, data := range unreadable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngines(t)
			stop := e.run("one", e.store, nil)
			e.start(`print(wait_for_event("com.example.tick", filter = {"n": 1}).id)`)
			e.await(execution.Parked)
			e.stored("poison", data)
			w := e.ended("w")
			if w.State != execution.Failed || !strings.Contains(w.Error,
				`wait_for_event: unreadable: the event "poison" of type "com.example.tick" from "/test" cannot be read`) {
				t.Fatalf("ended as %d: %s", w.State, w.Error)
			}
			stop()
			e.run("two", e.store, nil)
			if err := e.store.Retry(t.Context(), control.RetryRequest{Organization: 1, Workflow: "w", At: clock.System().Now()}); err != nil {
				t.Fatal(err)
			}
			e.await(execution.Parked)
			e.stored("good", json.RawMessage(`{"n": 1}`))
			e.await(execution.Completed)
			if h := strings.Join(e.history(), "\n"); !strings.Contains(h, `print "good"`) {
				t.Errorf("history:\n%s", h)
			}
		})
	}
}

// TestAProgramSkipsWhatItCannotRead: a long-running program continues with the next event, and the next message, automatically.
func TestAProgramSkipsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for name, data := range unreadable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngines(t)
			stop := e.run("one", e.store, nil)
			e.start(`
mine = channel()
for i in range(2):
    r = wait_for_event("com.example.tick", on_error = "return")
    print(r.ok, r.code, r.value and r.value.id)
for i in range(2):
    r = receive(mine, on_error = "return")
    print(r.ok, r.code, r.value and r.value.id)
print(wait_for_event("com.example.tick", timeout = 0, on_error = "return"))
print(receive(timeout = 0, on_error = "return", *[mine]).ok)
`)
			e.await(execution.Parked)
			token := strings.TrimSuffix(strings.TrimPrefix(e.history()[0], `channel "`), `"`)
			e.stored("poison", data)
			e.stored("good", json.RawMessage(`{"n": 1}`))
			for _, m := range []history.Message{{ID: "m1", Data: data}, {ID: "m2"}} {
				m.Organization, m.Token, m.Time = 1, token, clock.System().Now()
				if _, _, err := e.store.Send(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			e.run("two", e.store, nil)
			e.await(execution.Completed)
			var printed []string
			for _, line := range e.history() {
				if text, ok := strings.CutPrefix(line, "print "); ok {
					printed = append(printed, text)
				}
				if strings.Contains(line, "unreadable") && strings.Contains(line, token) {
					t.Errorf("the error shows the token of the channel: %s", line)
				}
			}
			want := `"False unreadable None" "True None good" "False unreadable None" "True None m2" "{\"ok\": True, \"value\": None, \"error\": None, \"code\": None}" "True"`
			if got := strings.Join(printed, " "); got != want {
				t.Errorf("printed %s, expected %s", got, want)
			}
		})
	}
}

// TestAFlowSkipsWhatItCannotRead counts such an event as refused, and starts a run for the next one.
func TestAFlowSkipsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for name, data := range unreadable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngines(t)
			flows := flow.NewFlows(flow.Deps{
				Store: e.store, Scripts: e.scripts, Start: e.service.StartOfFlow, Clock: clock.System(),
				Log: bustest.Log(t),
			})
			_, _, err := flows.Register(t.Context(), flow.Flow{
				Organization: 1, Name: "ticks", Program: program.Program{Source: []byte("def tick(event):\n    print(event.id)\n\non_event(type = \"com.example.tick\", handler = tick)\n")},
			})
			if err != nil {
				t.Fatal(err)
			}
			e.stored("poison", data)
			e.stored("good", json.RawMessage(`{"n": 1}`))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- flows.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			for deadline := clock.System().Now().Add(within); ; {
				found, err := flows.List(t.Context(), 1, 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				if found[0].Started+found[0].Refused == 2 {
					if found[0].Refused != 1 || !strings.Contains(found[0].LastRefusal, "inputs: ") {
						t.Errorf("found %+v, expected one refusal that says why", found[0])
					}
					return
				}
				if clock.System().Now().After(deadline) || clock.Sleep(t.Context(), clock.System(), 5e6) != nil {
					t.Fatalf("found %+v, expected one run and one refusal", found[0])
				}
			}
		})
	}
}

// TestInputsOfFlowsAreObjectsWithRoomForAnEvent: null made the registration panic, and with inputs that left no room for an event every run
// of the flow was refused later.
func TestInputsOfFlowsAreObjectsWithRoomForAnEvent(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	flows := flow.NewFlows(flow.Deps{
		Store: e.store, Scripts: e.scripts, Start: e.service.StartOfFlow, Clock: clock.System(),
		Log: bustest.Log(t),
	})
	const source = "v = 1\ndef tick(event):\n    print(event.id)\n\non_event(type = \"com.example.tick\", handler = tick)\n"
	padded := func(size int) string {
		return `{` + strings.Repeat(" ", size-2) + `}`
	}
	for name, tt := range map[string]struct {
		inputs string
		fits   bool
	}{
		"null": {"null", false}, "a list": {"[]", false}, "a text": {`"{}"`, false}, "a number": {"1", false}, "half an object": {"{", false},
		"none": {"", true}, "blanks": {" \n", true}, "an object": {"{}", true},
		"with room for an event": {padded(2 << 20), true}, "with no room for an event": {padded(4<<20 - 100), false},
	} {
		_, _, err := flows.Register(t.Context(), flow.Flow{
			Organization: 1, Name: "ticks", Inputs: []byte(tt.inputs),
			Program: program.Program{Source: []byte(source)},
		})
		fields := fault.FieldsOf(err)
		if tt.fits != (err == nil) || err != nil && (len(fields) == 0 || fields[0].Name != "inputs") {
			t.Errorf("%s: found %v", name, err)
		}
	}
}

// TestAnAnswerThatNoProgramCanReadIsAnError covers Functions of this process.
func TestAnAnswerThatNoProgramCanReadIsAnError(t *testing.T) {
	t.Parallel()
	e := newEngines(t)
	data := unreadable()
	e.run("one", e.store, func(_ context.Context, c activity.Call) (any, error) {
		name, _ := c.Args["answer"].(string)
		if name == "too much" {
			return strings.Repeat("x", 5<<20), nil
		}
		return data[name], nil
	})
	e.start(`
for answer in ["a number out of range", "values nested too deep", "too much"]:
    r = run("act", {"answer": answer}, on_error = "return")
    print(r.code, r.error)
poll("act", {"answer": "a number out of range"}, until = lambda v: True)
`)
	w := e.ended("w")
	if w.State != execution.Failed || !strings.Contains(w.Error, `poll("act"): unreadable: the answer of act: found the number 1e400`) {
		t.Errorf("ended as %d: %s", w.State, w.Error)
	}
	h := strings.Join(e.history(), "\n")
	for _, want := range []string{
		"unreadable the answer of act: found the number 1e400",
		"unreadable the answer of act: found values nested more than 200 deep", "too_large act answered 5242882 bytes",
	} {
		if !strings.Contains(h, want) {
			t.Errorf("the history lacks %q:\n%s", want, h)
		}
	}
}
