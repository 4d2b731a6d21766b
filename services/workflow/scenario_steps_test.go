package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/control"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store"
)

// The steps of a scenario: what a script does to its run.

// act carries out a step of the script: a verb of steps, and its arguments.
func (w *world) act(service *control.Service, step string) {
	w.t.Helper()
	verb, arguments, _ := strings.Cut(step, " ")
	carryOut, known := steps()[verb]
	if !known {
		w.t.Fatalf("unknown step %q", step)
	}
	if err := carryOut(w, service, step, arguments); err != nil {
		w.t.Fatalf("%s: %v", step, err)
	}
}

// steps lists the verbs of a script.
func steps() map[string]func(w *world, service *control.Service, step, arguments string) error {
	return map[string]func(*world, *control.Service, string, string) error{
		"event":    (*world).stepEvent,
		"advance":  (*world).stepAdvance,
		"send":     (*world).stepSend,
		"call":     (*world).stepCall,
		"answered": (*world).stepAnswered,
		"cancel":   (*world).stepCancel,
		"start":    (*world).stepStart,
		"change":   (*world).stepChange,
		"status":   (*world).stepStatus,
		"payloads": (*world).stepPayloads,
		"runs":     (*world).stepRuns,
	}
}

// stepEvent receives an event, and once more as a duplicate: event TYPE DATA.
func (w *world) stepEvent(service *control.Service, step, arguments string) error {
	eventType, data, _ := strings.Cut(arguments, " ")
	e := history.Event{
		Organization: w.organization, Source: emitters.SourceOf(eventType), ID: step, Type: eventType, Data: json.RawMessage(data),
		Time: w.clock.Now(),
	}
	return twice(func() (found bool, err error) {
		_, found, err = service.Receive(w.t.Context(), e)
		return found, err
	})
}

// stepAdvance advances the clock: advance DURATION.
func (w *world) stepAdvance(_ *control.Service, _, arguments string) error {
	d, err := time.ParseDuration(arguments)
	w.clock.Advance(d)
	return err
}

// stepSend sends a message to a channel, and once more as a duplicate: send N ID DATA, where N counts the run's channels from 0.
func (w *world) stepSend(service *control.Service, _, arguments string) error {
	number, message, _ := strings.Cut(arguments, " ")
	id, data, _ := strings.Cut(message, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	m := history.Message{Organization: w.organization, Token: w.tokens(service)[n], ID: id, Data: json.RawMessage(data)}
	return twice(func() (bool, error) { return service.SendToChannel(w.t.Context(), m) })
}

// stepCall calls the run by its inbox: call ID DATA. The run may answer at once, later, or may have answered already.
func (w *world) stepCall(service *control.Service, _, arguments string) error {
	id, data, _ := strings.Cut(arguments, " ")
	if _, err := w.call(service, id, data); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// stepAnswered repeats a call, and expects its answer: answered ID ANSWER.
func (w *world) stepAnswered(service *control.Service, _, arguments string) error {
	id, want, _ := strings.Cut(arguments, " ")
	answer, err := w.call(service, id, "null")
	if err != nil {
		return err
	}
	if got, _ := json.Marshal(answer); string(got) != want {
		return fmt.Errorf("found the answer %s, expected %s", got, want)
	}
	return nil
}

// stepCancel cancels the run: cancel REASON.
func (w *world) stepCancel(service *control.Service, _, arguments string) error {
	return service.Cancel(w.t.Context(), w.organization, "scenario", arguments)
}

// stepStart starts the run again with a message, twice: start ID DATA. It exists, so the message alone arrives, once.
func (w *world) stepStart(service *control.Service, _, arguments string) error {
	id, data, _ := strings.Cut(arguments, " ")
	again := w.start
	again.Message = &history.Message{ID: id, Data: json.RawMessage(data)}
	for range 2 {
		if started, err := service.Start(w.t.Context(), again); err != nil || started.Created {
			return fmt.Errorf("created %t, error %w", started.Created, err)
		}
	}
	return nil
}

// stepChange gives the run another program: change FILE.
func (w *world) stepChange(service *control.Service, _, file string) error {
	runs := store.New(store.Deps{
		Pool: w.pool, Encode: events.Encode, Add: outbox.AddNumbered, AddNew: outbox.AddNew, Committed: func() {},
		Woken: func(engine.Woken) {}, Clock: shown{w.clock}, Log: bustest.Log(w.t),
	})
	operator := control.NewOperator(service, runs, control.NewSubscriptions(runs, shown{w.clock}, bustest.Log(w.t)))
	next := w.start.Program
	next.Source = w.changed[file]
	request := control.ChangeRequest{Organization: w.organization, Workflow: "scenario", Program: next}
	if _, err := operator.ChangeProgram(w.t.Context(), request); err != nil {
		return err
	}
	w.start.Program = next
	return nil
}

// stepStatus expects what the run reports of itself: status JSON.
func (w *world) stepStatus(_ *control.Service, _, want string) error {
	if got := w.status(); got != want {
		return fmt.Errorf("found %s, expected %s", got, want)
	}
	return nil
}

// stepPayloads expects as many values of more than 64 KiB to be kept, each once: payloads N. A process that keeps smaller values by digest
// also keeps some that have a large one in them.
func (w *world) stepPayloads(_ *control.Service, _, want string) error {
	if w.lowered {
		return nil
	}
	return w.count(want, `SELECT count(*) FROM payload WHERE organization = $1 AND octet_length(data) > 65536`)
}

// stepRuns expects as many runs of the organization, with children: runs N.
func (w *world) stepRuns(_ *control.Service, _, want string) error {
	return w.count(want, `SELECT count(*) FROM execution WHERE organization = $1`)
}

func (w *world) count(want, statement string) error {
	var found int
	if err := w.pool.QueryRow(w.t.Context(), statement, w.organization).Scan(&found); err != nil {
		return err
	}
	if strconv.Itoa(found) != want {
		return fmt.Errorf("found %d, expected %s", found, want)
	}
	return nil
}

// twice delivers something and its duplicate: only the second must be recognized as one.
func twice(deliver func() (found bool, err error)) error {
	for _, duplicate := range []bool{false, true} {
		found, err := deliver()
		if err != nil {
			return err
		}
		if found != duplicate {
			return fmt.Errorf("found a duplicate: %t, expected %t", found, duplicate)
		}
	}
	return nil
}

// call calls the run by its id, and looks once for the answer.
func (w *world) call(service *control.Service, id, data string) (history.Answer, error) {
	w.t.Helper()
	m, err := service.Inbox(w.t.Context(), history.Message{Organization: w.organization, ID: id, Data: json.RawMessage(data)}, "scenario")
	if err != nil {
		w.t.Fatal(err)
	}
	return service.CallChannel(w.t.Context(), m, control.Wait{})
}

// tokens are those of the run's channels, in the order of the history.
func (w *world) tokens(service *control.Service) (tokens []string) {
	w.t.Helper()
	entries, err := service.History(w.t.Context(), w.organization, "scenario", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Kind == history.KindChannel {
			tokens = append(tokens, strings.Trim(string(entry.Value), `"`))
		}
	}
	return tokens
}
