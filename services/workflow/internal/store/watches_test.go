package store

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

func (b *testStore) wanted(agent int64) []string {
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
	b := newTestStore(t)
	open := func(l engine.Loaded, name string, agentID int64) string {
		w := agent.Watch{
			ID: l.Ref + "/0." + name, Execution: l.Ref, Agent: agentID,
			Spec: agent.WatchSpec{Kind: "Rollout", Name: name, Fields: []string{"status"}},
		}
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
	completes, cancelled, other := b.startRun(1), b.startRun(2), b.startRun(1)
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

	end := b.parking(completes)
	end.Next = execution.Completed
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
	b := newTestStore(t)
	l := b.startRun(5)
	id := l.Ref + "/0.1"
	w := agent.Watch{ID: id, Execution: l.Ref, Agent: 7, Spec: agent.WatchSpec{Kind: "Rollout", Fields: []string{}}}
	if err := b.OpenWatch(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	b.commit(b.parking(l, history.Op{
		Ref: history.OpRef{Index: 2}, Kind: history.KindWait, Types: []string{agent.TypeObjectChanged, agent.TypeRolloutStatusChanged},
		Filter: history.Filter{"watch": `"` + id + `"`}, Timeout: lease,
	}))
	e := eventAt(0, "1", agent.TypeRolloutStatusChanged, `{"watch":"`+id+`"}`, b.clock.Now())
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
	b := newTestStore(t)
	l := b.startRun(5)
	id := l.Ref + "/0.1"
	spec := agent.WatchSpec{Kind: "Rollout", Fields: []string{}, Subject: map[string]int64{"rollout_id": 12}}
	if err := b.OpenWatch(t.Context(), agent.Watch{ID: id, Execution: l.Ref, Agent: 7, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	b.commit(b.parking(l, history.Op{
		Ref: history.OpRef{Index: 2}, Kind: history.KindWait, Types: []string{agent.TypeRolloutStatusChanged, "abort"},
		Filter: history.Filter{"rollout_id": "12"}, Timeout: lease,
	}))
	e := eventAt(0, "1", agent.TypeRolloutStatusChanged, `{"watch":"`+id+`","rollout_id":13}`, b.clock.Now())
	if matched, err := b.ReceiveObserved(t.Context(), id, 7, e); err != nil || matched != 1 {
		t.Errorf("matched %d, %v; expected the wait for its subject", matched, err)
	}
}

// D61: what is observed of one target of a fleet wakes its run and no other; an abort wakes them all.
func TestAnObservationWakesOneTarget(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	about := history.Filter{"rollout_id": "7"}
	const abort = "com.gitlab.cd.rollout.abort_requested"
	var first string
	for target := range int64(10) {
		l := b.startRun(5)
		w := agent.Watch{ID: l.Ref + "/0.1", Execution: l.Ref, Agent: 50 + target, Spec: agent.WatchSpec{
			Kind: "Rollout", Name: "api", Fields: []string{}, Subject: map[string]int64{"rollout_id": 7, "target": 50 + target},
		}}
		if err := b.OpenWatch(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if target == 0 {
			first = w.ID
		}
		b.commit(b.parking(l, history.Op{
			Ref: history.OpRef{Index: 2}, Kind: history.KindWait, Types: []string{abort, agent.TypeRolloutStatusChanged}, Filter: about,
			Filters: map[string]history.Filter{agent.TypeRolloutStatusChanged: {"target": fmt.Sprint(50 + target)}}, Timeout: lease,
		}))
		waiting, err := b.Waiting(t.Context(), l.ID)
		if err != nil || len(waiting) != 1 || waiting[0].Filter.String() != about.String() {
			t.Fatalf("%+v, error %v; expected the filter that all types have", waiting, err)
		}
	}
	seen := eventAt(0, "1", agent.TypeRolloutStatusChanged, fmt.Sprintf(`{"watch":%q}`, first), b.clock.Now())
	if matched, err := b.ReceiveObserved(t.Context(), first, 50, seen); err != nil || matched != 1 {
		t.Errorf("the observation matched %d runs, error %v; expected 1", matched, err)
	}
	if matched, _, err := b.Receive(t.Context(), eventAt(5, "2", abort, `{"rollout_id":7}`, b.clock.Now())); err != nil || matched != 9 {
		t.Errorf("the abort matched %d runs, error %v; expected the 9 that still wait", matched, err)
	}
}
