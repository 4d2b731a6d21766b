package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// What a run is told with its wake-up is what it would read, and the counter says whether that is all (E24).
func TestWakeUpsTellWhatARunWouldRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var woken []core.Woken
	b.Woken = func(w core.Woken) { woken = append(woken, w) }
	one, two := wait(0, "com.example.go", core.Filter{"n": "1"}), wait(1, "com.example.go", core.Filter{"n": "2"})
	l := b.running(1)
	b.commit(b.turn(l, one, two))

	// Finer than a database's clock: the run must see one and the same time, told or read.
	e := happened(1, "first", "com.example.go", `{"n": 1, "text": "<é>"}`, b.clock.Now().Add(123456789*time.Nanosecond))
	if matched, _, err := b.Receive(t.Context(), e); err != nil || matched != 1 {
		t.Fatalf("matched %d (%v), expected 1", matched, err)
	}
	standing, arrived, err := b.Arrivals(t.Context(), l.ID)
	if err != nil || len(woken) != 1 || len(arrived) != 1 {
		t.Fatalf("%d wake-ups and %d arrivals (%v), expected one of each", len(woken), len(arrived), err)
	}
	want := &core.Came{Wakes: l.Wakes + 1, Arrival: arrived[0]}
	if diff := cmp.Diff(want, woken[0].Came); diff != "" || standing.Wakes != want.Wakes {
		t.Errorf("told with the wake-up (-read, +told; the counter is %d):\n%s", standing.Wakes, diff)
	}

	b.receive(1, "second", "com.example.go", `{"n": 2}`)
	if len(woken) != 2 || woken[1].Came == nil || woken[1].Came.Wakes != l.Wakes+2 {
		t.Errorf("the second wake-up is %+v, expected what came with the counter %d", woken[len(woken)-1], l.Wakes+2)
	}
}

// Where more than one thing comes in a transaction, or something that was there before, it has to be read.
func TestWakeUpsDoNotTellHalf(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var woken []core.Woken
	b.Woken = func(w core.Woken) { woken = append(woken, w) }
	both := b.running(1)
	b.commit(b.turn(both, wait(0, "com.example.go", core.Filter{"n": "1"}), wait(1, "com.example.go", core.Filter{"n": "2"})))
	teller := b.running(1)
	last := b.turn(teller)
	last.Next = core.Completed
	for _, n := range []string{"1", "2"} {
		last.Emits = append(last.Emits, core.Emit{
			ID: "emitted-" + n, Organization: 1, Workflow: teller.Workflow, Type: "com.example.go", Data: json.RawMessage(`{"n": ` + n + `}`), Time: b.clock.Now(),
		})
	}
	b.commit(last)
	if len(woken) != 1 || woken[0].ID != both.ID || woken[0].Came != nil {
		t.Errorf("woken %+v, expected execution %d alone, to read for itself", woken, both.ID)
	}
	if _, arrived, err := b.Arrivals(t.Context(), both.ID); err != nil || len(arrived) != 2 {
		t.Errorf("%d arrivals (%v), expected 2", len(arrived), err)
	}
}
