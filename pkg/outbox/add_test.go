package outbox_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// addNumbered adds events in one transaction, which gives them their positions.
func (s *stage) addNumbered(ids ...string) {
	s.t.Helper()
	var events []event.Event
	for _, id := range ids {
		events = append(events, started(id))
	}
	s.must(pg.InTx(s.t.Context(), s.from, func(tx pgx.Tx) error { return outbox.AddNumbered(s.t.Context(), tx, sealed(events...)...) }))
}

// placed are the ids in the outbox that have a position, with it.
func (s *stage) placed() map[int]string {
	s.t.Helper()
	rows, err := s.from.Query(s.t.Context(), `SELECT event_id, position FROM outbox WHERE position IS NOT NULL`)
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
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"a", "b", "c", "d", "e"})
	same(t, "positions", positions(t, messages), []int{1, 2, 3, 4, 5})
	s.deliver(messages...)
	s.confirm()
	same(t, "held", s.held(), []string{})
	s.addNumbered("f")
	same(t, "once the sender has seen them", s.placed(), map[int]string{6: "f"})
}

// Whoever gives positions, there is no gap: a receiver would wait for what is missing for ever.
func TestPositionsHaveNoGapWhoeverGivesThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const each, writers = 20, 4
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if id := fmt.Sprintf("e-%d-%d", w, i); w%2 == 0 {
					s.add(id)
				} else {
					s.addNumbered(id)
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
