package store

import (
	"encoding/json"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// emitting is the last turn of a run, which emits an event.
func (b *bench) emitting(l core.Loaded, eventType, data string) core.Commit {
	c := b.turn(l)
	c.Next, c.LastSeq = core.Completed, 1
	c.Entries = []core.Entry{{Seq: 1, Op: core.OpRef{Branch: -1}, Kind: core.KindCompleted, Value: []byte("{}"), At: b.clock.Now()}}
	c.Emits = []core.Emit{{ID: l.Ref + "/emitted", Organization: l.Organization, Workflow: l.Workflow, Type: eventType, Data: json.RawMessage(data), Time: b.clock.Now()}}
	return c
}

// A commit that does not go as expected leaves nothing behind and is done again with its questions asked: what is emitted reaches
// whoever waits, and is in the outbox once. From then on nobody expects anything else of this type in this organization.
func TestWhatIsAwaitedIsMatchedAlthoughNobodyExpectedIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var woken []int64
	b.Woken = func(w core.Woken) { woken = append(woken, w.ID) }
	waiter := b.running(1)
	b.commit(b.turn(waiter, wait(0, "com.example.go", core.Filter{"n": "1"})))

	first := b.emitting(b.running(1), "com.example.go", `{"n": 1}`)
	if !b.expected([]*work{{turn: &turn{Commit: first, told: []*told{emitted(first.Emits[0], "/services/workflow")}}}}) {
		t.Error("a type that was never seen to be awaited is not expected to be unawaited")
	}
	b.commit(first)
	same(t, "woken", []int64{waiter.ID}, woken)
	same(t, "arrived", []string{"0.0 " + first.Emits[0].ID}, b.arrived(waiter.ID))
	for of, want := range map[awaitedType]bool{{1, "com.example.go"}: true, {2, "com.example.go"}: false, {1, "com.example.other"}: false} {
		if got := b.awaited.has(of); got != want {
			t.Errorf("type %q of organization %d is known as awaited: %t", of.name, of.organization, got)
		}
	}
	b.commit(b.emitting(b.running(1), "com.example.other", `{}`))
	var held, entries int
	err := b.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM entry WHERE execution = $1)`, first.Execution.ID).Scan(&held, &entries)
	if err != nil || held != 2 || entries != 1 {
		t.Errorf("%d events in the outbox and %d entries (%v), expected 2 and 1", held, entries, err)
	}
}

// What was emitted before, by a turn that a retry has undone, is no obstacle.
func TestWhatWasEmittedBeforeIsEmittedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.emitting(b.running(1), "com.example.go", `{"n": 1}`)
	before := happened(1, c.Emits[0].ID, "com.example.go", `{"n": 1}`, b.clock.Now())
	before.Source = "/services/workflow"
	if _, _, err := b.Receive(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if done := b.commit(c); done.State != core.Completed {
		t.Errorf("the run is %s, expected it to have completed", done.State)
	}
	var events int
	if err := b.Pool.QueryRow(t.Context(), `SELECT count(*) FROM event`).Scan(&events); err != nil || events != 1 {
		t.Errorf("%d events (%v), expected 1", events, err)
	}
}
