package store

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// heard are events as they come together, of type com.example.go.
func (b *bench) heard(data ...string) (items []*work) {
	for _, d := range data {
		b.n++
		items = append(items, &work{received: &received{told: told{Event: happened(1, fmt.Sprintf("heard-%d", b.n), "com.example.go", d, b.clock.Now())}}})
	}
	return items
}

// handedOver lists how many waits each of items has matched; -1 is a duplicate.
func handedOver(items []*work) (matched []int) {
	for _, item := range items {
		if !item.received.stored {
			matched = append(matched, -1)
			continue
		}
		matched = append(matched, item.received.matched)
	}
	return matched
}

// Events of types that have come before are handed over without a question, each to its own wait, also where some of them have no key of
// a filter.
func TestEventsWhoseFiltersAreKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	woken := map[int64]*core.Came{}
	b.Woken = func(w core.Woken) { woken[w.ID] = w.Came }
	b.receive(1, "first", "com.example.go", `{"n": 0}`) // a type that nobody waits for
	if _, known := b.known(b.heard(`{}`)); !known {
		t.Error("the filters of a type that has come are not known")
	}
	one, both := b.running(1), b.running(1)
	b.commit(b.turn(one, wait(0, "com.example.go", core.Filter{"n": "1"})))
	b.commit(b.turn(both, wait(0, "com.example.go", core.Filter{"n": "2"}), wait(1, "com.example.go", core.Filter{"m": "3"})))

	// What is known is out of date: there are two filters now.
	stale, known := b.known(b.heard(`{"n": 1}`))
	if done, err := b.commitKnown(t.Context(), stale); !known || done || err != nil {
		t.Errorf("known %t, done %t (%v), expected nothing to be done", known, done, err)
	}
	items := b.heard(`{"n": 7}`)
	if err := b.commitAll(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	same(t, "matched by asking", []int{0}, handedOver(items))

	items = b.heard(`{"x": 1}`, `{"n": 1}`, `{"n": 5, "m": 3}`, `{"m": 4}`, `{"n": 2}`, `{"n": 1}`)
	h, known := b.known(items)
	if !known {
		t.Fatal("the filters that were just learnt are not known")
	}
	if done, err := b.commitKnown(t.Context(), h); !done || err != nil {
		t.Fatalf("done %t (%v)", done, err)
	}
	same(t, "matched", []int{0, 1, 1, 0, 1, 0}, handedOver(items))
	same(t, "what one run got", []string{"0.0 " + items[1].received.ID}, b.arrived(one.ID))
	same(t, "what the other got", []string{"1.0 " + items[2].received.ID, "0.0 " + items[4].received.ID}, b.arrived(both.ID))
	_, arrived, err := b.Arrivals(t.Context(), one.ID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what they were told", map[int64]*core.Came{one.ID: {Wakes: one.Wakes + 1, Arrival: arrived[0]}, both.ID: nil}, woken)

	// The same again, with one that is new: the whole is asked for.
	again := append(b.heard(`{"n": 9}`), &work{received: &received{told: told{Event: items[1].received.Event}}})
	if err := b.commitAll(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	same(t, "one that is new and a duplicate", []int{0, -1}, handedOver(again))
	twice := b.heard(`{"n": 9}`)
	if _, known := b.known(append(twice, twice...)); known {
		t.Error("two events of one name are known to be new")
	}
}

// A flow that is registered later starts its runs, whatever was known of the type.
func TestAFlowMeetsEventsOfATypeThatWasKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	met := 0
	b.Met = func() { met++ }
	b.receive(1, "before", "com.example.go", `{}`)
	_, _, err := b.RegisterFlow(t.Context(), core.Flow{
		Organization: 1, Name: "f", Program: core.Program{Source: []byte("x = 1")}, Inputs: json.RawMessage(`{}`), RegisteredAt: b.clock.Now(),
		Handlers: []core.Handler{{Types: []string{"com.example.go"}, Function: "f"}},
	}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	b.receive(1, "after", "com.example.go", `{}`)
	b.receive(1, "after that", "com.example.go", `{}`)
	work, err := b.NextFlowWork(t.Context(), b.clock.Now(), 10)
	if err != nil || len(work) != 2 || met != 2 {
		t.Errorf("%d starts are to be made and %d were told of (%v), expected 2", len(work), met, err)
	}
}
