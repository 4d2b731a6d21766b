package store

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

func TestMatching(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.receive(1, "too-early", "x", `{"id": 1}`)
	l, other := b.running(1), b.running(2)
	b.receive(1, "first", "x", `{"id": 1, "deep": {"s": "25", "n": 25}}`)
	b.receive(1, "second", "x", `{"id": 1}`)
	b.receive(1, "list", "x", `{"id": [1]}`)
	b.receive(1, "nothing", "x", `null`)
	b.commit(b.turn(other, wait(0, "x", core.Filter{"id": "1"})))
	same(t, "another organization's events", []string(nil), b.arrived(other.ID))

	b.commit(b.turn(l,
		wait(0, "x", core.Filter{"id": "1"}),
		wait(1, "x", core.Filter{"id": "1"}),
		wait(2, "x", core.Filter{"id": "1"}),
		wait(3, "x", core.Filter{"deep.n": `"25"`}),
		wait(4, "y,x,x", core.Filter{"id": `"1"`}),
		wait(5, "y", nil),
		wait(6, "x", core.Filter{"deep.s": "25"}),
	))
	same(t, "each event once, in order", []string{"0.0 first", "1.0 second"}, b.arrived(l.ID))
	for _, late := range []struct {
		id, eventType, data string
		matched             int
	}{
		{"third", "x", `{"id": 1.0}`, 1},
		{"fourth", "x", `{"id": 1}`, 0},
		{"text", "x", `{"id": "1"}`, 1},
		{"any", "y", `{"id": 1}`, 1},
		{"any-again", "y", `{}`, 0},
		{"deep", "x", `{"deep": {"s": 25}}`, 1},
	} {
		same(t, "waits matched by "+late.id, late.matched, b.receive(1, late.id, late.eventType, late.data))
		same(t, "waits matched by "+late.id+" again", 0, b.receive(1, late.id, late.eventType, late.data))
	}
	same(t, "in the end", []string{"0.0 first", "1.0 second", "2.0 third", "4.0 text", "5.0 any", "6.0 deep"}, b.arrived(l.ID))

	// What has become part of the history does not come again.
	b.claim(b.lease)
	l = b.load(l.ID)
	c := b.turn(l, wait(7, "x", core.Filter{"id": "1"}))
	for _, a := range l.Arrived {
		c.LastSeq++
		c.Entries = append(c.Entries, core.Entry{Seq: c.LastSeq, Op: a.Op, Kind: core.KindWait, Value: a.Value, Event: a.Event, At: c.At})
		c.Closed = append(c.Closed, a.Op)
	}
	b.commit(c)
	same(t, "the next wait", []string{"7.0 fourth"}, b.arrived(l.ID))
}

// TestEventsRaceWaits has an event and its wait committed at the same moment, many times, under filters that are new
// and filters that are known: no pair may miss each other (engine.md f.5, B6).
func TestEventsRaceWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const pairs = 150
	executions := make([]core.Loaded, pairs)
	for i := range executions {
		executions[i] = b.running(1)
	}
	eventType := func(i int) string { return "x" + strconv.Itoa(i/3) } // every third pair has a type, so a shape, of its own
	var race sync.WaitGroup
	for i, l := range executions {
		begin := make(chan struct{})
		race.Go(func() {
			<-begin
			if _, err := b.Commit(t.Context(), b.turn(l, wait(0, eventType(i), core.Filter{"id": strconv.Itoa(i)}))); err != nil {
				t.Error(err)
			}
		})
		race.Go(func() {
			<-begin
			e := happened(1, strconv.Itoa(i), eventType(i), fmt.Sprintf(`{"id": %d}`, i), b.clock.Now())
			if _, _, err := b.Receive(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
		close(begin)
		if i%8 == 7 {
			race.Wait()
		}
	}
	race.Wait()
	for i, l := range executions {
		same(t, "pair "+strconv.Itoa(i), []string{"0.0 " + strconv.Itoa(i)}, b.arrived(l.ID))
	}
}

// TestAFilterNobodyHasUsedFindsOlderEvents has a shape that a process registered and then died, before it gave the older
// events their keys.
func TestAFilterNobodyHasUsedFindsOlderEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(1)
	b.receive(1, "before", "x", `{"id": 1}`)
	if _, err := b.Pool.Exec(t.Context(), "INSERT INTO shape (organization, type, paths) VALUES (1, 'x', '{id}')"); err != nil {
		t.Fatal(err)
	}
	if done := b.commit(b.turn(l, wait(0, "x", core.Filter{"id": "1"}))); done.State != core.Running {
		t.Error("state", done.State)
	}
	same(t, "found", []string{"0.0 before"}, b.arrived(l.ID))
}

func TestForget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(1)
	b.receive(1, "old", "x", "{}")
	b.commit(b.turn(l, wait(0, "y", nil)))
	b.receive(1, "delivered", "y", "{}")
	b.clock.Advance(time.Hour)
	b.receive(1, "young", "x", "{}")
	if err := b.Forget(t.Context(), b.clock.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	rows, err := b.Pool.Query(t.Context(), "SELECT event_id FROM event ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	same(t, "left", []string{"delivered", "young"}, left)
}

func TestCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.running(1)
	called := core.Op{Ref: core.OpRef{Branch: 0, Index: 3}, Kind: core.KindRun, Name: "k8s.get", Args: []byte(`{"a":1}`), Timeout: time.Minute}
	b.commit(b.turn(l, called))
	id := l.Ref + "/0.3"
	due := func(want ...int) {
		t.Helper()
		calls, err := b.NextCalls(t.Context(), b.clock.Now(), 10)
		if err != nil {
			t.Fatal(err)
		}
		var attempts []int
		for _, c := range calls {
			attempts = append(attempts, c.Attempt)
			if c.ID != id || c.Agent != 7 || c.Function != "k8s.get" || string(c.Args) != `{"a":1}` || !c.Deadline.Equal(time.Date(2026, 3, 25, 10, 1, 0, 0, time.UTC)) {
				t.Errorf("call %+v", c)
			}
		}
		same(t, "attempts", want, attempts)
	}
	answer := func(agent int64, value string, refusal *core.FunctionError) error {
		a := core.Answer{Call: id, Agent: agent, Error: refusal}
		if value != "" {
			a.Value = []byte(value)
		}
		return b.Answer(t.Context(), a, b.clock.Now().Add(time.Second))
	}
	due(1)
	due()
	b.clock.Advance(2 * time.Second)
	due(2)
	b.clock.Advance(2 * time.Second)
	due() // the interval grows
	if err := answer(8, `{"of": "another agent"}`, nil); !fault.Is(err, fault.Denied) {
		t.Error("another agent's answer:", err)
	}
	if err := answer(7, "", &core.FunctionError{Code: "unreachable", Retryable: true}); err != nil {
		t.Fatal(err)
	}
	same(t, "after a retryable error", []string(nil), b.arrived(l.ID))
	b.clock.Advance(time.Second)
	due(3)
	for _, value := range []string{`{"first": true}`, `{"second": true}`} {
		if err := answer(7, value, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.clock.Advance(30 * time.Second)
	due()
	same(t, "claimed", []int64{l.ID}, b.claim(b.lease))
	l = b.load(l.ID)
	if len(l.Arrived) != 1 || string(l.Arrived[0].Value) != `{"first": true}` {
		t.Errorf("arrived %+v", l.Arrived)
	}
	c := b.turn(l)
	c.Closed = []core.OpRef{called.Ref}
	b.commit(c)
	if err := answer(7, `{"late": true}`, nil); err != nil {
		t.Error("a late answer:", err)
	}
	same(t, "after all", []string(nil), b.arrived(l.ID))
}
