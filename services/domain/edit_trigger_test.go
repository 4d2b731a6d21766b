package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/services/domain/internal/bundle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/handoff"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// editor is an engine with a repository behind it: answers are what runs report, by their order; a run without one continues.
type editor struct {
	mu      sync.Mutex
	away    bool
	order   []string
	inputs  map[string]string
	answers []map[string]string
	// created is when runs were begun, and stopped those that were asked to stop.
	created time.Time
	stopped []string
}

func (e *editor) Cancel(_ context.Context, _ int64, id, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.inputs[id]; !known {
		return fault.New(fault.NotFound, "no run")
	}
	e.stopped = append(e.stopped, id)
	return nil
}

func (e *editor) Start(_ context.Context, w handoff.Workflow) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return "", fault.New(fault.Unavailable, "no engine")
	}
	if before, again := e.inputs[w.ID]; !again {
		e.inputs[w.ID], e.order = string(w.Inputs), append(e.order, w.ID)
	} else if before != string(w.Inputs) {
		return "", fault.New(fault.Conflict, "other inputs")
	}
	return w.ID, nil
}

func (e *editor) WorkflowByID(_ context.Context, _ int64, id string) (handoff.WorkflowRun, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	run := handoff.WorkflowRun{ID: id, State: handoff.WorkflowRunning, CreatedAt: e.created}
	for i, known := range e.order {
		if known != id || i >= len(e.answers) || e.answers[i] == nil {
			continue
		}
		run.State = handoff.WorkflowCompleted
		for key, value := range e.answers[i] {
			text, _ := json.Marshal(value)
			run.Status = append(run.Status, handoff.WorkflowPair{Key: key, Value: string(text)})
		}
	}
	return run, nil
}

const editing = `{"types":["build.passed"],"edit":{"repository":"https://git.test/shop/config.git","branch":"main","files":[
	{"path":"deploy/values.yaml","yaml":"api.tag","from":"build.tag"},{"path":"deploy/values.yaml","regex":"digest: (\\S+)","from":"build.digest"}]}}`

// withEditor is the shop whose triggers use an engine of the test.
func withEditor(t *testing.T) (winter, *editor) {
	t.Helper()
	w := clocked(t)
	e := &editor{inputs: map[string]string{}}
	w.triggers = trigger.New(trigger.Deps{
		Store: w.store.ForTrigger(), Rollouts: w.rollouts, Ranges: bundle.Ranges{}, Sources: bundle.Repositories{}, Engine: e, Clock: w.now,
	})
	return w, e
}

// R4-28, D58: an event has files edited by a run, once and in the order of the events; the rollout begins once they are committed. What is
// only proposed, what changes nothing and what fails begins none, and says so.
func TestAnEventEditsFiles(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	send := func(id, data string) {
		t.Helper()
		_, err := w.triggers.SendEvent(t.Context(), user(), trigger.Event{
			ID: id, Source: "/ci", Type: "build.passed",
			Data: json.RawMessage(data),
		})
		w.ok(err)
	}
	// later lets a lease or a pause pass, and answers the last line.
	later := func(d time.Duration) string {
		t.Helper()
		w.now.Advance(d)
		lines := w.decide()
		if len(lines) == 0 {
			return ""
		}
		return lines[len(lines)-1]
	}
	e.away = true
	send("1", `{"build":{"tag":"1.1","digest":"sha256:a"}}`)
	send("1", `{"build":{"tag":"9.9","digest":"sha256:z"}}`)
	_, _, err := w.triggers.DecideDue(t.Context())
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("found %v; want that the engine is away", err)
	}
	e.away = false
	w.want(later(time.Minute), "waiting: its files are being edited")
	w.want(w.rolloutCount(), 0)
	var in struct {
		RepoURL  string `json:"repo_url"`
		Branch   string
		Files    []struct{ Edits []map[string]string }
		Trailers map[string]string
		Message  string
	}
	w.want(len(e.order), 1)
	w.ok(json.Unmarshal([]byte(e.inputs[e.order[0]]), &in))
	w.want([]any{in.RepoURL, in.Branch, len(in.Files), in.Files[0].Edits[0]["value"], in.Files[0].Edits[1]["value"], in.Trailers["Lockstep-Event-Id"], in.Message},
		[]any{"https://git.test/shop/config.git", "main", 1, "1.1", "sha256:a", "1", "Update deploy/values.yaml by trigger event"})
	// A second event waits for the first one's edit.
	send("2", `{"build":{"tag":"1.2","digest":"sha256:b"}}`)
	w.want(later(0), "waiting: an earlier event's edit is made first")
	w.want(len(e.order), 1)
	e.answers = []map[string]string{{"outcome": "committed", "commit": shaOf(77)}}
	later(time.Minute)
	w.want(w.rolloutCount(), 1)
	begun := w.active()
	by, why := w.created(begun)
	w.want([]string{by, why}, []string{"policy", "trigger event (event): sent by user 1: event:/ci/1"})
	w.succeed(begun)
	w.want(later(time.Minute), "waiting: its files are being edited")
	w.want(len(e.order), 2)
	for i, c := range []struct {
		answer map[string]string
		want   string
	}{
		{map[string]string{"outcome": "unchanged"}, "declined: the files have these values already"},
		{
			map[string]string{"outcome": "proposed", "link": "https://git.test/pulls/1"},
			"declined: the change is proposed, and nothing is rolled out before it is merged: https://git.test/pulls/1",
		},
		{map[string]string{"outcome": "refused", "why": "commit: forbidden: no"}, "declined: the files could not be edited: commit: forbidden: no"},
	} {
		if i > 0 { // the second event is the first of these
			send(fmt.Sprint("more ", i), `{"build":{"tag":"2","digest":"x"}}`)
			w.want(later(0), "waiting: its files are being edited")
		}
		e.answers = append(e.answers, c.answer)
		w.want(later(time.Minute), c.want)
	}
	w.want(w.rolloutCount(), 1)
	send("bare", `{"build":{"tag":"2"}}`)
	w.want(later(0), "declined: the files could not be edited: the data of the event has no build.digest that is one line of text of at most 1024 bytes")
	w.verifyJournal(begun)
}

// R4-28: an edit that fails is tried again by other runs, and given up with its reason; a process that is killed between two steps begins
// no second run of the same attempt.
func TestAnEditIsTriedAgain(t *testing.T) {
	t.Parallel()
	w, e := withEditor(t)
	w.trigger(core.TriggerEvent, editing)
	for range 5 {
		e.answers = append(e.answers, map[string]string{"outcome": "failed", "why": "commit: conflict: main has moved"})
	}
	e.answers = append(e.answers, map[string]string{"outcome": "withdrawn"}) // the last one searched for a commit
	_, err := w.triggers.SendEvent(t.Context(), user(), trigger.Event{
		ID: "1", Source: "/ci", Type: "build.passed", Data: json.RawMessage(`{"build":{"tag":"1.1","digest":"sha256:a"}}`),
	})
	w.ok(err)
	var last string
	for range 12 {
		if lines := w.decide(); len(lines) > 0 {
			last = lines[len(lines)-1]
		}
		// As if the process had ended before it stored what it has heard: the same attempt is the same run.
		w.now.Advance(3 * time.Minute)
	}
	w.want(last, "declined: the files could not be edited: commit: conflict: main has moved; it was tried 5 times")
	w.want(len(e.order), 6)
	w.want(w.rolloutCount(), 0)
}

// R4-28: what is wrong with an edit is found when it is saved, and only a member who may configure the whole organization saves one.
func TestAnEditIsChecked(t *testing.T) {
	t.Parallel()
	w := clocked(t)
	put := func(a core.Actor, edit string) error {
		_, err := w.triggers.PutTrigger(t.Context(), a, trigger.NewTrigger{
			ApplicationID: w.application.ID, Name: "edit", Kind: core.TriggerEvent, Config: json.RawMessage(`{"types":["t"],"edit":` + edit + `}`), Enabled: true,
		})
		return err
	}
	const place = `"repository":"https://git.test/a.git","branch":"main"`
	for at, edit := range map[string]string{
		"/config/edit/repository":    `{"repository":"https://u:p@git.test/a.git","branch":"main","files":[{"path":"a","yaml":"b","from":"c"}]}`,
		"/config/edit/files":         `{` + place + `}`,
		"/config/edit/files/0":       `{` + place + `,"files":[{"path":"a","yaml":"b","json":"b","from":"c"}]}`,
		"/config/edit/files/0/regex": `{` + place + `,"files":[{"path":"a","regex":"b","from":"c"}]}`,
		"/config/edit/files/0/path":  `{` + place + `,"files":[{"path":"/a","yaml":"b","from":"c"}]}`,
		"/config/edit/files/0/from":  `{` + place + `,"files":[{"path":"a","yaml":"b","from":"c d"}]}`,
	} {
		fields := fault.FieldsOf(put(user(), edit))
		if len(fields) != 1 || fields[0].Name != at {
			t.Errorf("%s: found %+v", at, fields)
		}
	}
	w.ok(put(user(), `{`+place+`,"files":[{"path":"a","yaml":"b","from":"c"}]}`))
	for _, k := range trigger.Kinds() {
		if _, err := schema.Compile(k.Schema); err != nil || (k.Kind == core.TriggerEvent) != strings.Contains(string(k.Schema), "pull_request") {
			t.Errorf("the schema of %s: %v", k.Kind, err)
		}
	}
}
