package domain

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

const built = `{"build":{"tag":"1.1","digest":"sha256:a"}}`

// built sends an event whose files are edited.
func (w winter) built(id, data string) {
	w.t.Helper()
	_, err := w.triggers.SendEvent(w.t.Context(), user(), trigger.Event{
		ID: id, Source: "/ci", Type: "build.passed",
		Data: json.RawMessage(data),
	})
	w.ok(err)
}

// after has triggers decide after a while, several times, and answers the last decision.
func (w winter) after(each time.Duration, times int) (last string) {
	w.t.Helper()
	for range times {
		w.now.Advance(each)
		if lines := w.decide(); len(lines) > 0 {
			last = lines[len(lines)-1]
		}
	}
	return last
}

// R4-28: each committed edit is rolled out, although no version set comes of the commit: at once, or after the rollout that is under way.
func TestEachCommittedEditIsRolledOut(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	e.answers = []map[string]string{
		{"outcome": "committed", "commit": shaOf(77)}, {"outcome": "committed", "commit": shaOf(78)}, {"outcome": "committed", "commit": shaOf(79)},
	}
	w.built("1", built)
	w.after(time.Minute, 2)
	w.want(w.rolloutCount(), 1)
	w.succeed(w.active())
	w.built("2", built)
	w.after(time.Minute, 2)
	w.want(w.rolloutCount(), 2)
	second := w.active()
	w.built("3", built)
	if last := w.after(time.Minute, 2); !strings.HasPrefix(last, "queued: ") {
		t.Errorf("found %q; want that it is queued", last)
	}
	w.succeed(second)
	_, begun, err := w.rollouts.BeginQueued(t.Context())
	w.ok(err)
	w.want(begun, true)
	w.want(w.rolloutCount(), 3)
	w.verifyJournal(w.active())
}

// R4-28: an edit whose answer was lost is rolled out: the next attempt finds the values in the files. What was only proposed is not.
func TestAnEditWhoseAnswerWasLostIsRolledOut(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	e.answers = []map[string]string{{"outcome": "failed", "why": "commit: timeout: no answer"}, {"outcome": "unchanged"}}
	w.built("1", built)
	w.after(time.Minute, 3)
	w.want(w.rolloutCount(), 1)
	w.succeed(w.active())
	w.trigger(core.TriggerEvent, strings.Replace(editing, `"edit":{`, `"edit":{"pull_request":true,`, 1))
	e.answers = append(e.answers, map[string]string{"outcome": "failed", "why": "timeout"}, map[string]string{"outcome": "unchanged"})
	w.built("2", built)
	w.want(w.after(time.Minute, 3), "declined: the files have these values already")
	w.want(w.rolloutCount(), 1)
}

// R4-28, D58: numbers of events are written, and compared, as they stand in the event.
func TestNumbersOfEventsStayAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, strings.Replace(editing, `"edit"`, `"data":{"build.tag":"20261129153"},"edit"`, 1))
	w.built("1", `{"build":{"tag":20261129153,"digest":1.10}}`)
	w.after(0, 1)
	w.want(len(e.order), 1)
	in := e.inputs[e.order[0]]
	if !strings.Contains(in, `"value":"20261129153"`) || !strings.Contains(in, `"value":"1.10"`) {
		t.Errorf("found %s", in)
	}
}

// R4-28: an edit is stopped, and not made again, if its trigger is switched off, removed or saved with another edit, or the application is
// archived. Nothing is rolled out for it.
func TestAnEditIsStoppedWithItsTrigger(t *testing.T) {
	t.Parallel()
	put := func(w winter, config string, enabled bool) {
		_, err := w.triggers.PutTrigger(t.Context(), user(), trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: "event", Kind: core.TriggerEvent, Config: json.RawMessage(config), Enabled: enabled,
		})
		w.ok(err)
	}
	for name, c := range map[string]struct {
		do   func(w winter)
		want string
	}{
		"switched off":   {func(w winter) { put(w, editing, false) }, "declined: the trigger was switched off by "},
		"without edit":   {func(w winter) { put(w, `{"types":["x"]}`, true) }, "declined: the files could not be edited: the trigger was saved without this edit"},
		"another branch": {func(w winter) { put(w, strings.Replace(editing, "main", "other", 1), true) }, "declined: the files could not be edited: the trigger was saved"},
		"archived": {func(w winter) {
			_, err := w.setup.ArchiveApplication(t.Context(), user(), w.application.ID, "over")
			w.ok(err)
		}, "declined: application"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, e := withEditor(t)
			w.trigger(core.TriggerEvent, editing)
			w.built("1", built)
			w.after(0, 1)
			w.want(len(e.order), 1)
			w.built("2", built)
			c.do(w)
			e.away = true // no other run is begun
			if last := w.after(time.Minute, 4); !strings.HasPrefix(last, c.want) {
				t.Errorf("found %q; want %q", last, c.want)
			}
			w.want(e.stopped, e.order)
			w.want(w.rolloutCount(), 0)
		})
	}
}

// R4-28: a run that does not end is stopped after half an hour, and the next edit is made.
func TestAnEditWithoutAnEndIsStopped(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	e.created = w.now.Now()
	w.built("1", built)
	w.built("2", built)
	w.after(20*time.Minute, 1)
	w.want(len(e.stopped), 0)
	w.after(11*time.Minute, 1)
	w.want(len(e.stopped), 1)
	e.created = w.now.Now()
	w.after(time.Minute, 1)
	e.answers = []map[string]string{nil, {"outcome": "withdrawn"}} // its commit was searched for
	w.after(time.Minute, 2)
	w.want(len(e.order), 3)
}

// R4-28: while the forge is away, an edit is tried again for more than an hour.
func TestAnEditWaitsForAForgeThatIsAway(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	for _, code := range []string{"unreachable", "timeout", "unreachable", "unreachable"} {
		e.answers = append(e.answers, map[string]string{"outcome": "failed", "code": code, "why": "commit: " + code + ": no answer"})
	}
	e.answers = append(e.answers, map[string]string{"outcome": "committed", "commit": shaOf(77)})
	w.built("1", built)
	w.after(time.Minute, 60)
	w.want(w.rolloutCount(), 0)
	w.after(time.Minute, 40)
	w.want(w.rolloutCount(), 1)
}

// R4-28: calls of the engine do not keep a decider waiting, and one that is dropped is repeated after its lease.
func TestEditsKeepNoDeciderWaiting(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	var calls []func(context.Context) error
	w.triggers = trigger.New(trigger.Deps{
		Store: w.store.ForTrigger(), Rollouts: w.rollouts, Ranges: bundle.Ranges{}, Sources: bundle.Repositories{}, Engine: e, Clock: w.now,
		Aside: func(_ context.Context, call func(context.Context) error) error {
			calls = append(calls, call)
			return nil
		},
	})
	w.trigger(core.TriggerEvent, editing)
	e.answers = []map[string]string{{"outcome": "committed", "commit": shaOf(77)}}
	w.built("1", built)
	w.want(w.after(0, 1), "waiting: its files are being edited")
	w.want([]int{len(calls), len(e.order)}, []int{1, 0})
	w.after(time.Minute, 1)
	w.want(len(calls), 2)
	w.ok(calls[1](t.Context()))
	w.ok(calls[0](t.Context()))
	w.after(0, 1)
	w.want([]int{len(e.order), w.rolloutCount()}, []int{1, 1})
}
