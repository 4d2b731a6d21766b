package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// running starts senders that run until the test ends, with the system's clock.
func (s *stage) running(n int) (stop []func()) { return s.runningOn(s.stream, n) }

func (s *stage) runningOn(bus outbox.Publisher, n int) (stop []func()) {
	for range n {
		sender := outbox.NewSender(outbox.SenderDeps{
			Pool: s.from, Bus: bus, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Name: "workflow", Receivers: []string{"domain"},
			ResendAfter: time.Hour, // nobody sends receipts, and on a busy machine the test may take longer than is usual
		})
		ctx, cancel := context.WithCancel(s.t.Context())
		done := make(chan error, 1)
		go func() { done <- sender.Run(ctx) }()
		end := sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				s.t.Errorf("run answered %v", err)
			}
		})
		s.t.Cleanup(end)
		stop = append(stop, end)
	}
	return stop
}

func TestTwoReplicasShareTheLanesAndOneTakesOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.running(1)[0]
	s.add("a")
	wait.For(t, "the first replica publishes", func() bool { return s.stream.stored() == 1 })
	s.running(1)
	s.add("b")
	wait.For(t, "one of them continues", func() bool { return s.stream.stored() == 2 })
	wait.For(t, "they share", func() bool { return slices.Equal(s.shares(), []int{4, 4}) })
	first()
	s.add("c")
	wait.For(t, "the second replica takes over", func() bool { return s.stream.stored() == 3 })
	same(t, "message ids", ids(s.stream.take()), []string{"a", "b", "c"})
}

func TestACommitWakesTheSenderOfItsLane(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	lead := s.newSender(s.clock) // its clock stands still: no poll will find anything
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	all.Go(func() { s.must(lead.Run(ctx)) })
	s.clock.AwaitTimers(1)
	follower := s.newSender(s.clock)
	all.Go(func() { s.must(follower.Run(ctx)) })
	s.clock.AwaitTimers(2)
	s.add("a")
	follower.Wake()
	s.clock.AwaitTimers(3)                  // it leaves some time between two rounds,
	s.clock.Advance(100 * time.Millisecond) // much less than to its poll
	wait.For(t, "the active sender publishes", func() bool { return s.stream.stored() == 1 })
}

// Where many events come, each waits a little for the others, and one that comes alone for none.
func TestARoundThatPublishedMuchIsFollowedLater(t *testing.T) {
	t.Parallel()
	for sent, want := range map[int]time.Duration{
		0: 5 * time.Millisecond, 1: 5 * time.Millisecond, 4: 10 * time.Millisecond,
		10: 25 * time.Millisecond, 256: 25 * time.Millisecond,
	} {
		same(t, fmt.Sprintf("pause after %d events", sent), outbox.Pause(sent), want)
	}
	s := newStage(t)
	sender := s.newSender(s.clock) // its clock stands still
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	all.Go(func() { s.must(sender.Run(ctx)) })
	s.clock.AwaitTimers(1) // it waits to be woken
	s.addMany(0, 20)
	sender.Wake()
	s.clock.AwaitTimers(2) // woken, it waits for the round's time
	s.clock.Advance(outbox.Pause(0))
	wait.For(t, "the sender publishes many", func() bool { return s.stream.stored() == 20 })
	s.add("late")
	sender.Wake()
	s.clock.AwaitTimers(2)
	s.clock.Advance(outbox.Pause(20) - time.Millisecond)
	same(t, "stored before the next round's time", s.stream.stored(), 20)
	s.clock.Advance(time.Millisecond)
	wait.For(t, "the sender publishes what came late", func() bool { return s.stream.stored() == 21 })
}

func TestASenderSurvivesTheDeathOfItsConnections(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.running(1)
	s.add("a")
	wait.For(t, "it publishes", func() bool { return s.stream.stored() == 1 })
	var killed int
	s.must(s.to.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = $1`, s.from.Config().ConnConfig.RuntimeParams["application_name"]).Scan(&killed))
	if killed == 0 {
		t.Fatal("found no connection to kill")
	}
	wait.For(t, "the pool works again", func() bool { return s.from.Ping(t.Context()) == nil })
	s.add("b")
	wait.For(t, "it publishes again", func() bool { return s.stream.stored() == 2 })
	same(t, "lanes", s.shares(), []int{outbox.Lanes})
}
