package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

func TestALostReceiptIsAskedForBySendingAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a")
	s.round()
	s.stream.loseHints = true
	s.deliver(s.stream.take()...)
	s.confirm()
	same(t, "held", s.held(), []string{"a"})
	s.stream.loseHints = false
	s.round()
	same(t, "sent again before it is due", s.stream.stored(), 0)
	s.clock.Advance(10 * time.Second)
	s.round()
	again := s.stream.take()
	same(t, "message ids", ids(again), []string{"a/2"})
	same(t, "positions", positions(t, again), []int{1})
	s.deliver(again...)
	s.confirm()
	same(t, "applied", s.applied, []string{"a"})
	same(t, "held", s.held(), []string{})
}

func TestEventsInAWipedStreamAreSentAgainAtTheSamePositions(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b")
	s.round()
	s.deliver(s.stream.take()[0]) // "b" is wiped, and the receipt for "a" comes
	s.confirm()
	s.add("c")
	s.round()
	s.stream.take() // wiped again
	s.clock.Advance(10 * time.Second)
	s.round()
	again := s.stream.take()
	same(t, "message ids", ids(again), []string{"b/2", "c/2"})
	same(t, "positions", positions(t, again), []int{2, 3})
	s.deliver(again...)
	s.confirm()
	same(t, "applied", s.applied, []string{"a", "b", "c"})
	same(t, "held", s.held(), []string{})
}

// A server that comes back empty is given what it had, in the old order, before anything new.
func TestWhatMayBeLostIsSentAgainBeforeWhatIsNew(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b")
	s.round()
	s.stream.take() // wiped
	s.add("c")
	s.stream.Hint("cd.receipt.workflow", nil) // the connection is back
	s.round()
	again := s.stream.take()
	same(t, "message ids", ids(again), []string{"a/2", "b/2", "c"})
	s.deliver(again...)
	s.round()
	same(t, "sent without need", s.stream.stored(), 0)
	s.confirm()
	same(t, "applied", s.applied, []string{"a", "b", "c"})
	same(t, "held", s.held(), []string{})
}

// Also when that is more than a round sends.
func TestWhatIsNewWaitsForAllThatIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addMany(0, 700)
	s.round()
	s.stream.take() // wiped
	s.addMany(700, 300)
	s.stream.Hint("cd.receipt.workflow", nil) // the connection is back
	s.round()
	for i, p := range positions(t, s.stream.take()) {
		if p != i+1 {
			t.Fatalf("message %d is at position %d", i+1, p)
		}
	}
}

// Also when the connection is lost and comes back in the middle of a round.
func TestWhatMayBeLostIsSentAgainBeforeTheRestOfTheRound(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.stream.after = func(e event.Event) {
		if e.ID() == "b" {
			s.stream.after, s.stream.messages, s.stream.moved = nil, nil, true // wiped
			s.sender.Take(nil)
		}
	}
	if _, err := s.sender.OneRound(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.stream.moved = false
	s.round()
	again := s.stream.take()
	same(t, "message ids", ids(again), []string{"a/2", "b/2", "c"})
	s.deliver(again...)
	s.confirm()
	same(t, "held", s.held(), []string{})
}

func TestTheWaitForAReceiptGrowsUpToItsBound(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a")
	s.round()
	for _, wait := range []time.Duration{10, 20, 40, 60, 60} {
		s.stream.take()
		s.clock.Advance(wait*time.Second - time.Millisecond)
		s.round()
		same(t, fmt.Sprintf("sent before %d s", wait), s.stream.stored(), 0)
		s.clock.Advance(time.Millisecond)
		s.round()
		same(t, fmt.Sprintf("sent after %d s", wait), s.stream.stored(), 1)
	}
}
