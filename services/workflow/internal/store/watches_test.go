package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

func (b *bench) wanted(agent int64) []string {
	b.t.Helper()
	watches, err := b.WantedWatches(b.t.Context(), agent)
	if err != nil {
		b.t.Fatal(err)
	}
	ids := []string{}
	for _, w := range watches {
		ids = append(ids, w.ID+" "+w.Spec.Name)
	}
	return ids
}

// E78: a watch lives as long as its execution, however that ends.
func TestWatchesEndWithTheirExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	open := func(l core.Loaded, name string, agent int64) string {
		w := core.Watch{ID: l.Ref + "/0." + name, Execution: l.Ref, Agent: agent, Spec: core.WatchSpec{Kind: "Rollout", Name: name, Fields: []string{"status"}}}
		for range 2 { // a repeat after a crash
			if err := b.OpenWatch(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		return w.ID
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), b.wanted(7)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	completes, cancelled, other := b.running(1), b.running(2), b.running(1)
	first, second := open(completes, "a", 7), open(cancelled, "b", 7)
	open(other, "c", 8)
	expect("opened", first+" a", second+" b")

	if agent, err := b.CloseWatch(t.Context(), cancelled.Ref, first); err != nil || agent != 0 {
		t.Errorf("closed another execution's watch: agent %d, %v", agent, err)
	}
	third := open(cancelled, "d", 7)
	if agent, err := b.CloseWatch(t.Context(), cancelled.Ref, third); err != nil || agent != 7 {
		t.Errorf("close: agent %d, %v", agent, err)
	}
	expect("closed", first+" a", second+" b")

	end := b.turn(completes)
	end.Next = core.Completed
	b.commit(end)
	expect("one completed", second+" b")
	if _, err := b.Cancel(t.Context(), 2, cancelled.Workflow, "enough", b.clock.Now()); err != nil {
		t.Fatal(err)
	}
	expect("one cancelled")
	open(completes, "late", 7)
	expect("opened after the end")
}

func TestObservationsAreReceivedFromTheirAgentOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(5)
	id := l.Ref + "/0.1"
	if err := b.OpenWatch(t.Context(), core.Watch{ID: id, Execution: l.Ref, Agent: 7, Spec: core.WatchSpec{Kind: "Rollout", Fields: []string{}}}); err != nil {
		t.Fatal(err)
	}
	b.commit(b.turn(l, core.Op{
		Ref: core.OpRef{Index: 2}, Kind: core.KindWait, Types: []string{core.TypeObjectChanged, core.TypeRolloutStatusChanged},
		Filter: core.Filter{"watch": `"` + id + `"`}, Timeout: lease,
	}))
	e := happened(0, "1", core.TypeRolloutStatusChanged, `{"watch":"`+id+`"}`, b.clock.Now())
	if _, err := b.ReceiveObserved(t.Context(), id, 8, e); !fault.Is(err, fault.Denied) {
		t.Errorf("another agent's observation: %v", err)
	}
	if matched, err := b.ReceiveObserved(t.Context(), "no such watch", 7, e); err != nil || matched != 0 {
		t.Errorf("nobody's observation: matched %d, %v", matched, err)
	}
	if matched, err := b.ReceiveObserved(t.Context(), id, 7, e); err != nil || matched != 1 {
		t.Errorf("matched %d, %v", matched, err)
	}
	if matched, err := b.ReceiveObserved(t.Context(), id, 7, e); err != nil || matched != 0 {
		t.Errorf("a duplicate: matched %d, %v", matched, err)
	}
}

// What is seen is about what the watch says, whatever the relay says that it is about: one wait hears of both.
func TestAnObservationHasTheSubjectOfItsWatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(5)
	id := l.Ref + "/0.1"
	spec := core.WatchSpec{Kind: "Rollout", Fields: []string{}, Subject: map[string]int64{"rollout_id": 12}}
	if err := b.OpenWatch(t.Context(), core.Watch{ID: id, Execution: l.Ref, Agent: 7, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	b.commit(b.turn(l, core.Op{
		Ref: core.OpRef{Index: 2}, Kind: core.KindWait, Types: []string{core.TypeRolloutStatusChanged, "abort"},
		Filter: core.Filter{"rollout_id": "12"}, Timeout: lease,
	}))
	e := happened(0, "1", core.TypeRolloutStatusChanged, `{"watch":"`+id+`","rollout_id":13}`, b.clock.Now())
	if matched, err := b.ReceiveObserved(t.Context(), id, 7, e); err != nil || matched != 1 {
		t.Errorf("matched %d, %v; expected the wait for its subject", matched, err)
	}
}
