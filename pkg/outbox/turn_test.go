package outbox_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// three are the messages of three events, in their order.
func three(s *stage) []message {
	s.t.Helper()
	s.add("a", "b", "c")
	s.round()
	return s.stream.take()
}

// inTurn asks, and has whatever is waited for not come for a while.
func (s *stage) inTurn(after time.Duration, messages ...message) []bool {
	s.t.Helper()
	events := make([]event.Event, len(messages))
	for i, m := range messages {
		events[i] = m.event
	}
	type answer struct {
		turns []bool
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		turns, err := s.inbox.InTurn(s.t.Context(), events)
		answered <- answer{turns, err}
	}()
	if after > 0 {
		s.clock.AwaitTimers(1)
		s.clock.Advance(after)
	}
	a := <-answered
	s.must(a.err)
	return a.turns
}

func TestWhatComesEarlyIsNotInTurn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	same(t, "all, in their order", s.inTurn(0, m...), []bool{true, true, true})
	same(t, "without the first", s.inTurn(time.Second, m[1], m[2]), []bool{false, false})
	same(t, "with the first among them", s.inTurn(time.Second, m[1], m[0], m[2]), []bool{false, true, false})
	s.deliver(m[0])
	same(t, "after the first", s.inTurn(0, m[1], m[2]), []bool{true, true})
	s.deliver(m[2])
	same(t, "what has come already", s.inTurn(0, m[2], m[0]), []bool{true, true})
}

func TestWhatIsNotInTurnIsSentAgainAfterWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	s.deliver(m[0])
	same(t, "the third without the second", s.inTurn(time.Second, m[2]), []bool{false})
	s.confirm()
	s.clock.Advance(time.Minute)
	s.round()
	again := s.stream.take()
	same(t, "sent again", positions(t, again), []int{2, 3})
	same(t, "in turn", s.inTurn(0, again...), []bool{true, true})
}

// What another replica is just committing is waited for.
func TestWhatAnotherReplicaAppliesIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	answered := make(chan []bool, 1)
	s.must(pg.InTx(t.Context(), s.to, func(tx pgx.Tx) error {
		if _, err := s.newInbox("domain").Claim(t.Context(), tx, m[0].event); err != nil {
			return err
		}
		go func() {
			turns, err := s.inbox.InTurn(t.Context(), []event.Event{m[1].event})
			if err != nil {
				t.Error(err)
			}
			answered <- turns
		}()
		s.clock.AwaitTimers(1)
		return nil
	}))
	s.clock.Advance(100 * time.Millisecond)
	same(t, "in turn", <-answered, []bool{true})
}

func TestARejectedEventIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	s.must(s.inbox.Reject(t.Context(), m[0].event, "not valid"))
	same(t, "in turn", s.inTurn(0, m[1], m[2]), []bool{true, true})
}

// An event that its sender cannot send at all holds up the others for as long as was said, once.
func TestAGapIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.inbox.GapAtMost = time.Minute
	m := three(s)
	same(t, "at first", s.inTurn(time.Second, m[1]), []bool{false})
	s.clock.Advance(time.Minute)
	same(t, "later", s.inTurn(0, m[1], m[2]), []bool{true, true})
}

// A receiver that is new begins where the sender can still begin.
func TestANewReceiverBeginsAtTheBase(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.deliver(three(s)...)
	s.confirm()
	_, err := s.to.Exec(t.Context(), `TRUNCATE inbox, inbox_mark`)
	s.must(err)
	s.inbox = s.newInbox("domain")
	s.add("d")
	s.round()
	same(t, "in turn", s.inTurn(0, s.stream.take()...), []bool{true})
}

func TestAnUnreachableDatabaseSaysNothingOfTheTurn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	s.to.Close()
	if turns, err := s.inbox.InTurn(t.Context(), []event.Event{m[1].event}); err == nil || turns != nil {
		t.Errorf("found %v, %v, expected an error", turns, err)
	}
}
