package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/limit"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/program"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/sandbox"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/script"
	limitstore "github.com/lockstep-cd/lockstep/services/workflow/internal/store/limits"
)

// bounded are processes whose programs are limited.
type bounded struct {
	*engines
	limiter *limit.Limiter
}

func newBounded(t *testing.T, scripts program.Scripts, organization int64, of limit.Limits) bounded {
	t.Helper()
	b := bounded{engines: newEnginesWith(t, scripts)}
	b.limiter = limit.New(limitstore.New(b.store.Pool), clock.System(), bustest.Log(t))
	b.store.Tally, b.service.Admit, b.limits = b.limiter.Tally, b.limiter.Start, b.limiter
	b.set(organization, of)
	return b
}

func (b bounded) set(organization int64, of limit.Limits) {
	b.t.Helper()
	if err := b.limiter.Set(b.t.Context(), limit.Change{Organization: organization, To: &of, By: "operator", Reason: "test"}); err != nil {
		b.t.Fatal(err)
	}
}

func (b bounded) submit(organization int64, workflow, source string) {
	b.t.Helper()
	if _, err := b.service.Start(b.t.Context(), execution.Start{
		Organization: organization, Workflow: workflow, Program: program.Program{Source: []byte(source)},
	}); err != nil {
		b.t.Fatalf("%s: %v", workflow, err)
	}
}

func (b bounded) number(sql string) (n int) {
	b.t.Helper()
	if err := b.store.Pool.QueryRow(b.t.Context(), sql).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// printed are the lines of organization 1's run "w".
func (b bounded) printed() (lines []string) {
	b.t.Helper()
	w, err := b.store.Get(b.t.Context(), 1, "w")
	if err != nil {
		b.t.Fatal(err)
	}
	entries, err := b.store.History(b.t.Context(), w.ID, 0, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Kind == history.KindPrint {
			var line string
			if err := json.Unmarshal(e.Value, &line); err != nil {
				b.t.Fatal(err)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func acts(context.Context, activity.Call) (any, error) { return 1, nil }

// A program that starts children without end has as many as its organization may have, gets an error that it can catch for each more, and
// has the same ones after a replay in another process. Also where it starts more of them in one turn than may be open, and in a sandbox
// (issue 18, point 8).
func TestAProgramCannotPassTheOpenRuns(t *testing.T) {
	t.Parallel()
	const source = `
def main(leaf = False):
    if leaf:
        sleep(3600)
    started, refused = [], []
    for n in range(20):
        tried = attempt(start_workflow, "main.star", {"leaf": True}, id = "leaf-%d" % n)
        if tried.ok:
            started.append(tried.value.id)
        else:
            refused.append(tried.error.code)
    print(len(started), len(refused), refused[0])
    run("act", {})
    tried = attempt(start_workflow, "main.star", {"leaf": True}, id = "leaf-19")
    print(tried.error.code, tried.error.message)
    wait_for_event("com.example.go")
`
	for name, scripts := range map[string]program.Scripts{
		"in the process": script.New(script.Limits{}), "in a sandbox": sandboxed(t, sandbox.Limits{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBounded(t, scripts, 1, limit.Limits{OpenRuns: 8})
			stop := b.runWith("one", b.store, acts, 2000)
			b.submit(1, "w", source)
			b.submit(2, "other", `start_workflow("main.star", {"x": 1}, detached = True)`)
			b.await(execution.Parked)
			expect := []string{"7 13 limited", "limited found 8 open runs of organization 1, expected fewer than 8: wait until some have ended"}
			if got := b.printed(); strings.Join(got, "\n") != strings.Join(expect, "\n") {
				t.Errorf("found %q, expected %q", got, expect)
			}
			if n := b.number(`SELECT count(*) FROM execution WHERE organization = 1`); n != 8 {
				t.Errorf("found %d runs of organization 1, expected 8", n)
			}
			stop()
			b.runWith("two", b.store, acts, 2000) // replays
			if _, _, err := b.service.Receive(t.Context(), history.Event{
				Organization: 1, Source: "/test", ID: "1", Type: "com.example.go", Data: json.RawMessage(`{}`), Time: clock.System().Now(),
			}); err != nil {
				t.Fatal(err)
			}
			b.await(execution.Completed)
			if b.limiter.Refused()[limit.OpenRuns] != 14 {
				t.Errorf("counted %v refusals, expected 14 of open runs", b.limiter.Refused())
			}
			if err := b.limiter.Start(1, 0); err != nil && !fault.Is(err, fault.Limited) {
				t.Error(err)
			}
		})
	}
}

// A parent of more children than may start in a second has all of them, each once, no faster than the rate, without a place meanwhile, also
// when its process is replaced in the middle; another organization's programs are not slowed down.
func TestAProgramWaitsForTheRateOfStarts(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{StartsPerSecond: 100, OpenRuns: 1000})
	stop := b.runWith("one", b.store, acts, 2000)
	began := clock.System().Now()
	const source = `
def main(n = None):
    if n != None:
        return n
    children = []
    for i in range(5):
        children += [start_workflow("main.star", {"n": 40 * i + j}) for j in range(40)]
        run("act", {})
    print(len([await_workflow(child) for child in children]))
`
	b.submit(1, "w", source)
	// More runs than there are places wait for the same rate, and take none of them from others.
	for n := range 15 {
		b.submit(1, fmt.Sprint("hog-", n), `
def main(n = None):
    if n == None:
        [start_workflow("main.star", {"n": i}, detached = True) for i in range(10)]
`)
	}
	for n := range 5 {
		b.submit(2, fmt.Sprint("other-", n), `
def main(n = None):
    if n == None:
        await_workflow(start_workflow("main.star", {"n": 1}))
`)
	}
	wait.For(t, "the other organization's runs have ended", func() bool {
		return b.number(`SELECT count(*) FROM execution WHERE organization = 2 AND ended_at IS NOT NULL`) == 10
	})
	if n := b.number(`SELECT count(*) FROM execution WHERE organization = 1`); n >= 16+350 {
		t.Errorf("all %d runs of the limited organization had started before the others ended", n)
	}
	stop()
	b.runWith("two", b.store, acts, 2000)
	b.await(execution.Completed)
	wait.For(t, "all have ended", func() bool {
		return b.number(`SELECT count(*) FROM execution WHERE organization = 1 AND ended_at IS NOT NULL`) == 16+350
	})
	if took := clock.System().Now().Sub(began); took < 1500*time.Millisecond { // 350 at 100 a second, and twice a burst of 100
		t.Errorf("350 children have started within %s at 100 a second", took)
	}
	if got := b.printed(); len(got) != 1 || got[0] != "200" {
		t.Errorf("found %q, expected that 200 children were awaited", got)
	}
	if b.limiter.Waits()[limit.Starts] == 0 || b.limiter.Refused() != [5]int64{} {
		t.Errorf("found waits %v and refusals %v, expected waits and no refusal", b.limiter.Waits(), b.limiter.Refused())
	}
}

// A program that emits without end is as fast as its organization's rate, and gets an error when the storage is used up; its next
// generation then waits, and says so, until there is room again. The runs of the domain service are not refused.
func TestAProgramCannotPassTheEventsAndTheStorage(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{EventsPerSecond: 50})
	b.checkEmit = func(history.Emit) *history.FunctionError { return nil }
	b.service.Full = func(organization int64) bool { return b.limiter.Full(limit.Program{Organization: organization}) }
	b.runWith("one", b.store, acts, 2000)
	began := clock.System().Now()
	const hog = `
def main():
    for i in range(4):
        for j in range(25):
            run("emit", {"type": "org.shop.tick", "data": {"n": i * 25 + j}})
        run("act", {})
`
	b.submit(1, "w", hog)
	b.await(execution.Completed)
	if took := clock.System().Now().Sub(began); took < 900*time.Millisecond { // 100 at 50 a second, and a burst of 50
		t.Errorf("100 events were emitted within %s at 50 a second", took)
	}
	if n := b.number(`SELECT count(*) FROM event WHERE type = 'org.shop.tick'`); n != 100 {
		t.Errorf("found %d events, expected 100", n)
	}
	b.set(1, limit.Limits{StorageBytes: 100_000})
	const fills = `
def again():
    print("again")

def main():
    for i in range(1000):
        tried = run("emit", {"type": "org.shop.tick", "data": {"text": "x" * 10000}}, on_error = "return")
        if not tried.ok:
            print(i < 20, tried.code)
            break
    continue_with(again)
`
	b.submit(1, "fills", fills)
	b.submit(1, "rollout-7", fills)
	b.submit(2, "other", fills)
	var why []string
	wait.For(t, "it waits for storage", func() bool {
		w, waits, err := b.service.Get(t.Context(), 1, "fills")
		why = waits
		return err == nil && w.Generation == 2 && len(waits) == 1
	})
	if !strings.Contains(why[0], "waits until the storage of its organization is below its limit") {
		t.Errorf("it says %q", why)
	}
	for id, of := range map[string]int64{"rollout-7": 1, "other": 2} {
		wait.For(t, id+" ends", func() bool {
			w, err := b.store.Get(t.Context(), of, id)
			return err == nil && w.State == execution.Completed
		})
	}
	if n := b.number(`SELECT count(*) FROM entry JOIN execution x ON x.id = entry.execution WHERE x.workflow = 'fills' AND entry.kind = 'emit'`); n > 20 {
		t.Errorf("found %d events of a program that has room for 10", n)
	}
	if err := b.service.Cancel(t.Context(), 1, "fills", "enough"); err != nil {
		t.Fatal(err)
	}
	if w := b.ended("fills"); w.State != execution.Cancelled {
		t.Errorf("it ended as %d", w.State)
	}
}

// A message with a start passes the limit of events, also where its run exists; a retry passes that of open runs.
func TestMessagesOfStartsAndRetriesAreLimited(t *testing.T) {
	t.Parallel()
	b := newBounded(t, script.New(script.Limits{}), 1, limit.Limits{EventsPerSecond: 1, OpenRuns: 1})
	b.service.AdmitMessage = b.limiter.Event
	send := func(id string) error {
		_, err := b.service.Start(t.Context(), execution.Start{
			Organization: 1, Workflow: "w", Program: program.Program{Source: []byte("sleep(60)")}, Message: &history.Message{ID: id},
		})
		return err
	}
	if err := send("1"); err != nil {
		t.Fatal(err)
	}
	if err := send("2"); !fault.Is(err, fault.Limited) || !strings.Contains(err.Error(), "sends events") {
		t.Errorf("found %v, expected a limit of events", err)
	}
	if err := send("1"); err != nil {
		t.Errorf("the receipt of a repeat: %v", err)
	}
	if n := b.number(`SELECT count(*) FROM event WHERE type = '` + history.TypeMessage + `'`); n != 1 {
		t.Errorf("found %d messages, expected one", n)
	}
}

var _ engine.Limits = (*limit.Limiter)(nil)

// Who uses a large part of a limit is known, the closest first, with what and of how much; the rates fall again. Calls of channels have a
// limit by default, which an organization can have changed (issue 18, point 8).
func TestWhoIsCloseToALimitIsKnown(t *testing.T) {
	t.Parallel()
	tt, l := limited(t)
	tt.limit(l, 1, limit.Limits{OpenRuns: 4, EventsPerSecond: 10})
	tt.limit(l, 2, limit.Limits{OpenRuns: 100, CallsPerSecond: 1})
	for n := range 3 {
		for org := range int64(2) {
			if err := tt.start(org+1, fmt.Sprint("run-", n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 60 { // seconds
		for range 9 {
			if err := l.Event(1, 1); err != nil {
				t.Fatal(err)
			}
		}
		tt.clock.Advance(time.Second)
	}
	near := l.Nearest(0.5, 20)
	if len(near) != 2 || near[0].Kind != limit.Events && near[1].Kind != limit.Events || near[0].Share() < near[1].Share() ||
		near[0].Organization != 1 || near[1].Organization != 1 {
		t.Fatalf("found %+v, expected the open runs and the events of organization 1", near)
	}
	if len(l.Nearest(0.5, 1)) != 1 || len(l.Nearest(0.95, 20)) != 0 {
		t.Errorf("found %+v and %+v", l.Nearest(0.5, 1), l.Nearest(0.95, 20))
	}
	standing, err := l.Get(t.Context(), 1)
	if err != nil || standing.Rates[limit.Events] < 6 || standing.Rates[limit.Events] > 10 {
		t.Errorf("found %+v, %v; expected about 8 events a second", standing, err)
	}
	tt.clock.Advance(5 * time.Minute)
	if near := l.Nearest(0.5, 20); len(near) != 1 || near[0] != (limit.Use{Organization: 1, Kind: limit.OpenRuns, Used: 3, Most: 4}) {
		t.Errorf("found %+v, expected the open runs only", near)
	}
	calls := func(org int64, most int) (n int) {
		for n < most && l.Call(org) == nil {
			n++
		}
		return n
	}
	if found := [3]int{calls(1, 2000), calls(2, 2000), calls(3, 2000)}; found != [3]int{1000, 5, 1000} {
		t.Errorf("found %v calls at once, expected 1000 by default and 5 at one in a second", found)
	}
	if err := l.Call(2); !fault.Is(err, fault.Limited) || !strings.Contains(err.Error(), "calls channels more often than 1 times a second") {
		t.Errorf("found %v", err)
	}
}
