package script

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
)

// kinds are what a history holds, by kind and name.
func kinds(entries []history.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, strings.TrimSpace(string(e.Kind)+" "+e.Name))
	}
	return all
}

const stoppable = `
def release(what):
    run("echo", {"release": what})

def main():
    defer(release, "always")
    on_cancel(release, "cancelled")
    spawn(sleep, 100)
    run("echo", {"n": 1})
    receive(channel(), timeout = 1000)
    fail("this is after the end")
`

// A run that is stopped from outside makes its deferred calls, and does so again, from every entry on, after its process has died.
func TestStoppedRunsMakeTheirDeferredCalls(t *testing.T) {
	t.Parallel()
	finish := func(m program.Machine, recorded []history.Entry) ([]history.Entry, error) {
		for {
			entries, _ := m.Take()
			recorded = append(recorded, entries...)
			if ended, failure := m.Outcome(); ended {
				return recorded, failure
			}
			for _, op := range m.Pending() {
				if op.Kind == history.KindRun {
					m.Complete(answer(op))
					break
				}
			}
		}
	}
	begun := func(recorded []history.Entry) program.Machine {
		m := open(t, stoppable, recorded)
		_ = m.Replay(recorded) // a failure is the outcome's too
		return m
	}
	for _, tt := range []struct {
		cause program.Stopped
		want  []string
	}{
		{program.Stopped{Cancelled: true, Reason: "enough"}, []string{
			"defer release", "defer release", "run echo", "channel", "ending cancelled", "run echo", "deferred release", "run echo",
			"deferred release",
		}},
		{program.Stopped{Reason: "too long"}, []string{
			"defer release", "defer release", "run echo", "channel", "ending failed", "run echo", "deferred release",
		}},
	} {
		m := begun(nil)
		for _, op := range m.Pending() {
			if op.Kind == history.KindRun {
				m.Complete(answer(op))
			}
		}
		if !m.Stop(tt.cause) || m.Stop(tt.cause) {
			t.Error("expected that the run is stopped, and once")
		}
		all, failure := finish(m, nil)
		if diff := cmp.Diff(tt.want, kinds(all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.cause.Reason, diff)
		}
		if cause, is := failure.(*program.Stopped); !is || *cause != tt.cause { //nolint:errorlint // it is not wrapped
			t.Errorf("found the outcome %v, expected %v", failure, tt.cause)
		}
		for n := 5; n < len(all); n++ { // behind the entry that says that it was stopped
			m := begun(all[:n:n])
			if m.Stop(program.Stopped{Cancelled: true, Reason: "again"}) {
				t.Error("a run that is ending was stopped again")
			}
			again, failure := finish(m, all[:n:n])
			if diff := cmp.Diff(all, again); diff != "" {
				t.Errorf("replayed from %d entries (-first +again):\n%s", n, diff)
			}
			if failure.Error() != tt.cause.Reason {
				t.Errorf("replayed from %d entries, it ends with %v", n, failure)
			}
		}
	}
	m := open(t, `receive(channel())`, nil)
	if err := m.Replay(nil); err != nil || !m.Stop(program.Stopped{Reason: "enough"}) || len(m.Pending()) > 0 {
		t.Error("a run without deferred calls did not end at once")
	}
}

// What was deferred in one generation is called at the end of the next one.
func TestTheNextGenerationMakesTheDeferredCalls(t *testing.T) {
	t.Parallel()
	source := `
def release(what, n = 0):
    run("echo", {"release": what, "n": n})

def again(): pass

defer(release, "by the top level")

def main():
    defer(release, "carried", n = 2)
    continue_with(again)
`
	first, failure := execute(t, source, nil)
	if failure != nil {
		t.Fatal(failure)
	}
	env := testEnvironment(nil)
	env.Continuation = first[len(first)-1].Value
	m, err := New(Limits{}).Open(program.Program{Source: []byte(source)}, nil, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if err := m.Replay(nil); err != nil {
		t.Fatal(err)
	}
	var called []string
	for {
		entries, _ := m.Take()
		for _, e := range entries {
			if e.Kind == history.KindRun {
				called = append(called, string(e.Value))
			}
		}
		if ended, failure := m.Outcome(); ended {
			if failure != nil {
				t.Fatal(failure)
			}
			break
		}
		for _, op := range m.Pending() {
			if op.Kind == history.KindRun {
				m.Complete(answer(op))
				break
			}
		}
	}
	want := []string{`{"n":2,"release":"carried"}`, `{"n":0,"release":"by the top level"}`}
	if diff := cmp.Diff(want, called); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A run that was recorded by a program before its change continues without it, one that is new takes it, and either is the same at its
// replay.
func TestPatchedProgramsContinueOldHistories(t *testing.T) {
	t.Parallel()
	before := "run(\"echo\", {\"n\": 1})\nrun(\"echo\", {\"n\": 2})\nrun(\"echo\", {\"n\": 3})\n"
	after := "run(\"echo\", {\"n\": 1})\nif patched(\"two\"):\n    run(\"echo\", {\"n\": 20})\nelse:\n    run(\"echo\", {\"n\": 2})\nrun(\"echo\", {\"n\": 3})\n"
	old, failure := execute(t, before, nil)
	if failure != nil {
		t.Fatal(failure)
	}
	for n := 1; n < len(old); n++ {
		again, failure := execute(t, after, old[:n])
		if failure != nil {
			t.Fatalf("from %d entries: %v", n, failure)
		}
		if diff := cmp.Diff(old, again); diff != "" {
			t.Errorf("from %d entries, another history (-old +again):\n%s", n, diff)
		}
	}
	fresh, failure := execute(t, after, nil)
	if failure != nil || !cmp.Equal(kinds(fresh), []string{"run echo", "patched two", "run echo", "run echo"}) {
		t.Errorf("a new run recorded %v, failure %v", kinds(fresh), failure)
	}
	for n := range fresh {
		if n == 1 {
			continue // a turn is stored as a whole: no history ends between an answer and what the program did on the spot
		}
		if again, failure := execute(t, after, fresh[:n]); failure != nil || !cmp.Equal(fresh, again) {
			t.Errorf("from %d entries of a new run: %v, failure %v", n, kinds(again), failure)
		}
	}
	env := testEnvironment(nil)
	env.Begun = true
	m, err := New(Limits{}).Open(program.Program{Source: []byte(`print(patched("x"))`)}, nil, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if err := m.Replay(nil); err != nil {
		t.Fatal(err)
	}
	if entries, _ := m.Take(); string(entries[0].Value) != `"False"` {
		t.Errorf("a run that waits for its first answer takes the change: %s", entries[0].Value)
	}
}

// An outcome that the program would no longer have is found, and one that is worded in another way stays as it was recorded.
func TestTheRecordedOutcomeOfAnAttemptStays(t *testing.T) {
	t.Parallel()
	source := "def f():\n    fail(\"new words\")\nprint(attempt(f).error.message)\nrun(\"echo\", {})\n"
	entries, failure := execute(t, source, nil)
	if failure != nil {
		t.Fatal(failure)
	}
	entries[0].Value = json.RawMessage(strings.Replace(string(entries[0].Value), "new words", "old words", 1))
	entries[1].Value = json.RawMessage(`"old words"`)
	entries[1].Hash = printHash(t, "old words")
	if _, failure = execute(t, source, entries); failure != nil {
		t.Errorf("the recorded words are not those that the program has: %v", failure)
	}
	entries[0].Value = json.RawMessage(`{"ok":true}`)
	if _, failure = execute(t, source, entries); failure == nil || !strings.Contains(failure.Error(), "attempt f has succeeded in the history, now it has failed") {
		t.Errorf("found %v", failure)
	}
}

// printHash is the fingerprint of a printed line.
func printHash(t *testing.T, line string) uint64 {
	t.Helper()
	entries, failure := execute(t, "run(\"echo\", {})\nprint(\""+line+"\")", nil)
	if failure != nil {
		t.Fatal(failure)
	}
	return entries[1].Hash
}

// An input of a name that has become a builtin since stays what it was.
func TestInputsHideBuiltinsThatWereAdded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"attempt", "defer", "on_cancel", "patched", "start_workflow", "await_workflow", "set_status"} {
		source := program.Program{Source: []byte("print(" + name + ")")}
		m, err := New(Limits{}).Open(source, []byte(`{"`+name+`": 7}`), testEnvironment(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Replay(nil); err != nil {
			t.Error(err)
		}
		if entries, _ := m.Take(); len(entries) != 1 || string(entries[0].Value) != `"7"` {
			t.Errorf("%s: found %v", name, entries)
		}
		m.Close()
	}
}
