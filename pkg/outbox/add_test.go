package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// addNumbered adds events in one transaction, which gives them their positions.
func (s *stage) addNumbered(ids ...string) {
	s.t.Helper()
	s.must(s.addBy(outbox.AddNumbered, ids...))
}

// addNew is addNumbered for events that are new.
func (s *stage) addNew(ids ...string) {
	s.t.Helper()
	s.must(s.addBy(outbox.AddNew, ids...))
}

// addBy has add add events in one transaction.
func (s *stage) addBy(add func(context.Context, pgx.Tx, ...event.Sealed) error, ids ...string) error {
	var events []event.Event
	for _, id := range ids {
		events = append(events, started(id))
	}
	return pg.InTx(s.t.Context(), s.from, func(tx pgx.Tx) error { return add(s.t.Context(), tx, sealed(events...)...) })
}

// placed are the ids in the outbox that have a position, with it.
func (s *stage) placed() map[int]string {
	s.t.Helper()
	rows, err := s.from.Query(s.t.Context(), `SELECT event_id, place FROM outbox WHERE place IS NOT NULL`)
	s.must(err)
	placed := map[int]string{}
	var id string
	var position int
	_, err = pgx.ForEachRow(rows, []any{&id, &position}, func() error { placed[position] = id; return nil })
	s.must(err)
	return placed
}

func TestEventsAreNumberedAsTheyAreAdded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addNumbered("a", "b", "a") // of two that are the same, one is held
	undone := errors.New("undone")
	err := pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error {
		return errors.Join(outbox.AddNumbered(t.Context(), tx, sealed(started("never"))...), undone)
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	s.addNumbered("b", "c") // a step that is repeated may add its event again
	s.add("d")              // the sender numbers it
	s.addNumbered("e")      // and what comes behind it
	same(t, "before the sender has seen them", s.placed(), map[int]string{1: "a", 2: "b", 3: "c"})
	s.addNew("f") // or what is new, together with itself
	same(t, "before the sender has seen them", s.placed(), map[int]string{1: "a", 2: "b", 3: "c", 4: "d", 5: "e", 6: "f"})
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"a", "b", "c", "d", "e", "f"})
	same(t, "positions", positions(t, messages), []int{1, 2, 3, 4, 5, 6})
	s.deliver(messages...)
	s.confirm()
	same(t, "held", s.held(), []string{})
	s.addNumbered("g")
	s.addNew("h", "i", "h") // of two that are the same, one is held
	same(t, "once the sender has seen them", s.placed(), map[int]string{7: "g", 8: "h", 9: "i"})
}

// Adding a stored event as new is an error that the caller can recognize, and leaves no gap.
func TestWhatIsNotNewIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addNew("a")
	err := s.addBy(outbox.AddNew, "b", "a")
	if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.ConstraintName != "outbox_event_once" {
		t.Errorf("answered %v, want a violation of outbox_event_once", err)
	}
	s.addNew("c")
	same(t, "positions", s.placed(), map[int]string{1: "a", 2: "c"})
}

// What the receivers do not confirm has no place among what they count, whichever way it is added.
func TestWhatIsNotConfirmedGetsNoPosition(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	call, err := event.New(event.Header{ID: "call", Source: "/services/workflow", Time: time.Unix(0, 1)},
		event.FunctionCalled{
			AgentID: 7, CallID: "c", Function: "k8s.get", Arguments: json.RawMessage(`{}`), Attempt: 1,
			Deadline: "2026-03-25T12:00:00Z",
		})
	s.must(err)
	s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error {
		return outbox.AddNew(t.Context(), tx, sealed(started("a"), call, started("b"))...)
	}))
	same(t, "positions", s.placed(), map[int]string{1: "a", 2: "b"})
	s.round()
	same(t, "message ids", ids(s.stream.take()), []string{"call", "a", "b"})
	same(t, "held", s.held(), []string{"a", "b"}) // the stream's acknowledgement is enough for the call
}

// There is no gap, whichever process gives the positions: a receiver would wait for what is missing for ever.
func TestPositionsHaveNoGapWithSeveralWriters(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const each, writers = 20, 6
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				switch id := fmt.Sprintf("e-%d-%d", w, i); w % 3 {
				case 0:
					s.add(id)
				case 1:
					s.addNumbered(id)
				default:
					s.addNew(id)
				}
			}
		})
	}
	all.Go(func() {
		for range each {
			s.must(s.sender.Round(t.Context()))
		}
	})
	all.Wait()
	s.round()
	placed := s.placed()
	for p := 1; p <= each*writers; p++ {
		if placed[p] == "" {
			t.Errorf("nothing at position %d", p)
		}
	}
	same(t, "number of positions", len(placed), each*writers)
}

// While one replica gives positions, those of another do not wait for its transaction to add events: theirs get their positions from who
// adds next, or from the sender, behind those of what they follow (D65).
func TestAReplicaAddsWithoutWaitingForAnother(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addNew("a")
	held, err := s.from.Begin(t.Context())
	s.must(err)
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	s.must(outbox.AddNew(t.Context(), held, sealed(started("b"))...))
	s.addNew("c")
	s.addNumbered("d")
	same(t, "beside a transaction that gives positions", s.placed(), map[int]string{1: "a"})
	s.must(held.Commit(t.Context()))
	s.addNew("e") // it follows c and d, which get theirs with it
	same(t, "before the sender has seen them", s.placed(), map[int]string{1: "a", 2: "b", 3: "c", 4: "d", 5: "e"})
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"a", "b", "c", "d", "e"})
	same(t, "positions", positions(t, messages), []int{1, 2, 3, 4, 5})
}

// What is much, or was sent before, gets its places from the sender, and so does what follows it.
func TestWhatIsMuchIsLeftToTheSender(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var want []string
	for i := range 101 {
		want = append(want, fmt.Sprintf("e-%d", i))
	}
	s.add(want...)
	s.addNew("last")
	same(t, "behind many", s.placed(), map[int]string{})
	s.round()
	same(t, "message ids", ids(s.stream.take()), append(want, "last"))

	// As after a new epoch: what was sent is to be sent again under another place, at once.
	_, err := s.from.Exec(t.Context(), `UPDATE outbox SET place = NULL WHERE event_id = 'last'`)
	s.must(err)
	s.addNew("next")
	placed := s.placed()
	same(t, "behind what was sent", []string{placed[102], placed[103]}, []string{"", ""})
}

// However many transactions add events at once, those without a place have one when the next transaction has added its own.
func TestTheNextCommitRepairsWhatTwoAtOnceHaveLeft(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const each, writers = 20, 4
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				s.addNew(fmt.Sprintf("e-%d-%d", w, i))
			}
		})
	}
	all.Wait()
	s.addNew("last")
	placed := s.placed()
	for p := 1; p <= each*writers; p++ {
		if placed[p] == "" {
			t.Errorf("nothing at position %d", p)
		}
	}
	same(t, "the last one", placed[each*writers+1], "last")
}
