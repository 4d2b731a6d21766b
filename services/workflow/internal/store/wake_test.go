package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// The arrival in a wake-up is what the run would read, and the counter shows whether it is the only one (E24).
func TestAWakeUpHasItsArrival(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	var woken []engine.Woken
	b.Woken = func(w engine.Woken) { woken = append(woken, w) }
	one, two := waitFor(0, "com.example.go", history.Filter{"n": "1"}), waitFor(1, "com.example.go", history.Filter{"n": "2"})
	l := b.startRun(1)
	b.commit(b.parking(l, one, two))

	// The time is finer than the database stores: the run must see the same time in the wake-up as in the row.
	e := eventAt(1, "first", "com.example.go", `{"n": 1, "text": "<é>"}`, b.clock.Now().Add(123456789*time.Nanosecond))
	if matched, _, err := b.Receive(t.Context(), e); err != nil || matched != 1 {
		t.Fatalf("matched %d (%v), expected 1", matched, err)
	}
	standing, arrived, err := b.Arrivals(t.Context(), l.ID)
	if err != nil || len(woken) != 1 || len(arrived) != 1 {
		t.Fatalf("%d wake-ups and %d arrivals (%v), expected one of each", len(woken), len(arrived), err)
	}
	want := &engine.Wakeup{Wakes: l.Wakes + 1, Arrival: arrived[0]}
	if diff := cmp.Diff(want, woken[0].Wakeup); diff != "" || standing.Wakes != want.Wakes {
		t.Errorf("arrival in the wake-up (-read, +reported; the counter is %d):\n%s", standing.Wakes, diff)
	}

	b.receive(1, "second", "com.example.go", `{"n": 2}`)
	if len(woken) != 2 || woken[1].Wakeup == nil || woken[1].Wakeup.Wakes != l.Wakes+2 {
		t.Errorf("the second wake-up is %+v, expected what came with the counter %d", woken[len(woken)-1], l.Wakes+2)
	}
}

// If one transaction has several arrivals for a run, or one that was stored before, the run has to read them.
func TestAWakeUpHasNoneOfSeveralArrivals(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	var woken []engine.Woken
	b.Woken = func(w engine.Woken) { woken = append(woken, w) }
	both := b.startRun(1)
	b.commit(b.parking(both, waitFor(0, "com.example.go", history.Filter{"n": "1"}), waitFor(1, "com.example.go", history.Filter{"n": "2"})))
	emitter := b.startRun(1)
	last := b.parking(emitter)
	last.Next = execution.Completed
	for _, n := range []string{"1", "2"} {
		last.Emits = append(last.Emits, history.Emit{
			ID: "emitted-" + n, Organization: 1, Workflow: emitter.Workflow, Type: "com.example.go",
			Data: json.RawMessage(`{"n": ` + n + `}`), Time: b.clock.Now(),
		})
	}
	b.commit(last)
	if len(woken) != 1 || woken[0].ID != both.ID || woken[0].Wakeup != nil {
		t.Errorf("woken %+v, expected execution %d alone, to read for itself", woken, both.ID)
	}
	if _, arrived, err := b.Arrivals(t.Context(), both.ID); err != nil || len(arrived) != 2 {
		t.Errorf("%d arrivals (%v), expected 2", len(arrived), err)
	}
}
