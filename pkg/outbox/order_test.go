package outbox_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

// three are the messages of three events, in their order.
func three(s *stage) []message {
	s.t.Helper()
	s.add("a", "b", "c")
	s.round()
	return s.stream.take()
}

// ready calls Ready; the events that it waits for do not arrive within the given time.
func (s *stage) ready(after time.Duration, messages ...message) []bool {
	s.t.Helper()
	events := make([]event.Event, len(messages))
	for i, m := range messages {
		events[i] = m.event
	}
	type answer struct {
		ready []bool
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		ready, err := s.inbox.Ready(s.t.Context(), events)
		answered <- answer{ready, err}
	}()
	if after > 0 {
		s.clock.AwaitTimers(1)
		s.clock.Advance(after)
	}
	a := <-answered
	s.must(a.err)
	return a.ready
}

func TestAnEarlyEventIsNotReady(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	same(t, "all, in their order", s.ready(0, m...), []bool{true, true, true})
	same(t, "without the first", s.ready(time.Second, m[1], m[2]), []bool{false, false})
	same(t, "with the first among them", s.ready(time.Second, m[1], m[0], m[2]), []bool{false, true, false})
	s.deliver(m[0])
	same(t, "after the first", s.ready(0, m[1], m[2]), []bool{true, true})
	s.deliver(m[2])
	same(t, "events that arrived before", s.ready(0, m[2], m[0]), []bool{true, true})
}

func TestAnEarlyEventIsSentAgainAfterTheMissingOnes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	s.deliver(m[0])
	same(t, "the third without the second", s.ready(time.Second, m[2]), []bool{false})
	s.confirm()
	s.clock.Advance(time.Minute)
	s.round()
	again := s.stream.take()
	same(t, "sent again", positions(t, again), []int{2, 3})
	same(t, "ready", s.ready(0, again...), []bool{true, true})
}

func TestReadyWaitsForEventsThatAnotherReplicaApplies(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	answered := make(chan []bool, 1)
	s.must(pg.InTx(t.Context(), s.to, func(tx pgx.Tx) error {
		if _, err := s.newInbox("domain").Claim(t.Context(), tx, m[0].event); err != nil {
			return err
		}
		go func() {
			ready, err := s.inbox.Ready(t.Context(), []event.Event{m[1].event})
			if err != nil {
				t.Error(err)
			}
			answered <- ready
		}()
		s.clock.AwaitTimers(1)
		return nil
	}))
	s.clock.Advance(100 * time.Millisecond)
	same(t, "ready", <-answered, []bool{true})
}

func TestARejectedEventIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	s.must(s.inbox.Reject(t.Context(), m[0].event, "not valid"))
	same(t, "ready", s.ready(0, m[1], m[2]), []bool{true, true})
}

// An event that its sender cannot send at all holds up the others once, for GapAtMost.
func TestAGapIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.inbox.GapAtMost = time.Minute
	m := three(s)
	same(t, "at first", s.ready(time.Second, m[1]), []bool{false})
	s.clock.Advance(time.Minute)
	same(t, "later", s.ready(0, m[1], m[2]), []bool{true, true})
}

// A new receiver begins at the first position that the sender still has.
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
	same(t, "ready", s.ready(0, s.stream.take()...), []bool{true})
}

func TestNoEventIsReadyWithoutADatabase(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := three(s)
	s.to.Close()
	if ready, err := s.inbox.Ready(t.Context(), []event.Event{m[1].event}); err == nil || ready != nil {
		t.Errorf("found %v, %v; expected an error", ready, err)
	}
}

// A lane that has waited long for an event has no other lane's events refused before they have been waited for.
func TestAGapOfOneSequenceDoesNotHurryAnother(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	placed := func(epoch string, position int) message {
		e := startedBy("rollout-7", epoch+strconv.Itoa(position))
		e.SetExtension(outbox.ExtensionSender, "workflow")
		e.SetExtension(outbox.ExtensionEpoch, epoch)
		e.SetExtension(outbox.ExtensionPosition, strconv.Itoa(position))
		return message{e.ID(), e}
	}
	same(t, "the gap", s.ready(time.Second, placed("a", 2)), []bool{false})
	answered := make(chan []bool, 1)
	go func() {
		ready, err := s.inbox.Ready(t.Context(), []event.Event{placed("a", 3).event, placed("b", 2).event})
		if err != nil {
			t.Error(err)
		}
		answered <- ready
	}()
	s.clock.AwaitTimers(1)
	s.must(pg.InTx(t.Context(), s.to, func(tx pgx.Tx) error {
		_, err := s.newInbox("domain").Claim(t.Context(), tx, placed("b", 1).event)
		return err
	}))
	s.clock.Advance(100 * time.Millisecond)
	same(t, "ready", <-answered, []bool{false, true})
}
