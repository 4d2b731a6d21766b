package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
)

func same(t *testing.T, what string, got, want any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, append(options, cmpopts.EquateEmpty())...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestEventsArriveInOrderAndAreDeletedOnceConfirmed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"a", "b", "c"})
	same(t, "positions", positions(t, messages), []int{1, 2, 3})
	s.deliver(messages...)
	same(t, "applied", s.applied, []string{"a", "b", "c"})
	same(t, "held before the receipt", s.held(), []string{"a", "b", "c"})
	s.confirm()
	same(t, "held after the receipt", s.held(), []string{})
}

func TestWhatTheCallerPutOnAnEventStaysAsItWas(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a")
	s.round()
	got := s.stream.take()[0].event
	for _, own := range []string{outbox.ExtensionSender, outbox.ExtensionEpoch, outbox.ExtensionPosition, outbox.ExtensionBase} {
		if event.Extension(got, own) == "" {
			t.Errorf("extension %s is missing", own)
		}
		got.SetExtension(own, nil)
	}
	want, err := json.Marshal(started("a"))
	s.must(err)
	found, err := json.Marshal(got)
	s.must(err)
	same(t, "event", string(found), string(want))
}

func TestNothingIsPublishedWithoutACommit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	undone := errors.New("undone")
	err := pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error {
		s.must(outbox.Add(t.Context(), tx, sealed(started("a"))...))
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	s.add("b")
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"b"})
	same(t, "positions", positions(t, messages), []int{1})
}

func TestACrashAfterTheCommitLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a")
	s.sender = s.newSender(s.clock) // the process that committed never got to publish
	s.round()
	same(t, "message ids", ids(s.stream.take()), []string{"a"})
}

func TestACrashAfterThePublicationRepeatsItUnderTheSameMessageID(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b")
	ctx, crash := context.WithCancel(t.Context())
	s.stream.after = func(event.Event) { crash() }
	if err := s.sender.Round(ctx); err == nil {
		t.Fatal("the round did not notice the crash")
	}
	s.stream.after = nil
	s.sender = s.newSender(s.clock)
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"a", "b"})
	same(t, "positions", positions(t, messages), []int{1, 2})
}

func TestTwoSendersAtOnceLeaveNoGapAndGiveNoPositionTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const n = 60
	var all sync.WaitGroup
	for w := range 3 { // three writers, and two senders that both believe to be the active one
		all.Go(func() {
			for i := range n / 3 {
				s.add(fmt.Sprintf("e-%d-%d", w, i))
			}
		})
	}
	for range 2 {
		other := s.newSender(s.clock)
		all.Go(func() {
			for range 20 {
				s.must(other.Round(t.Context()))
			}
		})
	}
	all.Wait()
	s.round()
	where := map[int]string{}
	for _, m := range s.stream.take() {
		p := position(t, m)
		if where[p] != "" && where[p] != m.event.ID() {
			t.Errorf("position %d belongs to %s and %s", p, where[p], m.event.ID())
		}
		where[p] = m.event.ID()
	}
	for p := 1; p <= n; p++ {
		if where[p] == "" {
			t.Errorf("nothing at position %d", p)
		}
	}
	same(t, "number of positions", len(where), n)
}

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

func TestARefusedEventDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.stream.before = func(e event.Event) error {
		if e.ID() == "b" {
			return fault.New(fault.Denied, "not on this subject")
		}
		return nil
	}
	s.round()
	same(t, "message ids", ids(s.stream.take()), []string{"a", "c"})
	const want = `
# HELP lockstep_outbox_events Events of the outbox that their receivers have not confirmed; 100000 stands for more, too.
# TYPE lockstep_outbox_events gauge
lockstep_outbox_events 3
# HELP lockstep_outbox_failing_events Those of them that the bus has refused.
# TYPE lockstep_outbox_failing_events gauge
lockstep_outbox_failing_events 1
`
	compare := func() error {
		return testutil.CollectAndCompare(outbox.Metrics(s.from), strings.NewReader(want), "lockstep_outbox_events", "lockstep_outbox_failing_events")
	}
	err := compare()
	for tries := 1; err != nil && tries < 10; tries++ { // a database on a busy machine may be too slow for a scrape
		err = compare()
	}
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(outbox.Metrics(s.from)); err != nil || len(problems) > 0 {
		t.Errorf("names of the metrics: %v %v", problems, err)
	}
}

func TestABusThatIsAwayKeepsTheOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	away := true
	s.stream.before = func(e event.Event) error {
		if away && e.ID() == "b" {
			return fault.New(fault.Unavailable, "nats is not connected")
		}
		return nil
	}
	if err := s.sender.Round(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("round answered %v", err)
	}
	same(t, "message ids", ids(s.stream.take()), []string{"a"})
	away = false
	s.round()
	same(t, "message ids", ids(s.stream.take()), []string{"b", "c"})
}

func TestACallToAClusterIsDoneWithOnceTheStreamHasIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	call, err := event.New(event.Header{ID: "call", Source: "/services/workflow", Time: time.Unix(0, 0)},
		event.FunctionCalled{AgentID: 42, CallID: "1/7", Function: "k8s.get", Arguments: json.RawMessage(`{}`), Attempt: 1, Deadline: "2026-03-25T10:05:00Z"})
	s.must(err)
	s.must(pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, sealed(call)...) }))
	s.add("a")
	s.round()
	messages := s.stream.take()
	same(t, "message ids", ids(messages), []string{"call", "a"})
	same(t, "position of the call", event.Extension(messages[0].event, outbox.ExtensionPosition), "")
	same(t, "position of the other", position(t, messages[1]), 1)
	same(t, "held", s.held(), []string{"a"})
}

func TestAddRefusesWhatCanNeverBePublished(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	unknown := started("u")
	unknown.SetType("com.example.unknown")
	homeless := started("h")
	homeless.SetExtension(event.ExtensionOrganization, nil)
	huge, err := event.New(event.Header{ID: "big", Source: "/services/workflow", Organization: 1, Time: time.Unix(0, 0)},
		event.RolloutFailed{RolloutID: 7, Reason: strings.Repeat("x", 1<<20)})
	s.must(err)
	for name, test := range map[string]struct {
		event event.Event
		want  string
	}{
		"unknown type":    {unknown, "not in the event catalogue"},
		"no organization": {homeless, event.ExtensionOrganization + ": missing"},
		"too large":       {huge, "expected at most"},
	} {
		err := pg.InTx(t.Context(), s.from, func(tx pgx.Tx) error {
			e, err := event.Seal(test.event)
			if err != nil {
				return err
			}
			return outbox.Add(t.Context(), tx, e)
		})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: answered %v", name, err)
		}
	}
	same(t, "held", s.held(), []string{})
}

func TestAnEventIsHeldOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "a")
	same(t, "held", s.held(), []string{"a"})
}

func TestOnlyWhatEveryReceiverHasIsDeleted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sender = s.newSender(s.clock, "domain", "audit")
	s.hear()
	s.add("a", "b")
	s.round()
	messages := s.stream.take()
	s.deliver(messages...)
	s.confirm()
	same(t, "held while one receiver is silent", s.held(), []string{"a", "b"})
	epoch := event.Extension(messages[0].event, outbox.ExtensionEpoch)
	s.sender.Take(fmt.Appendf(nil, `{"sender":"workflow","receiver":"audit","epoch":%q,"mark":1}`, epoch))
	s.sender.Take(fmt.Appendf(nil, `{"sender":"workflow","receiver":"stranger","epoch":%q,"mark":2}`, epoch))
	s.sender.Take([]byte(`not a receipt`))
	s.round()
	same(t, "held when it has confirmed one", s.held(), []string{"b"})
}

func TestASenderWhoseDatabaseWasSetBackBeginsANewSequence(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.round()
	s.deliver(s.stream.take()...)
	// The database comes back from a backup that knows only of "a"; "d" is added after that.
	_, err := s.from.Exec(t.Context(), `DELETE FROM outbox WHERE event_id <> 'a'; UPDATE outbox_cursor SET position = 1`)
	s.must(err)
	s.add("d")
	s.round()
	taken := s.stream.take()
	same(t, "positions", positions(t, taken), []int{2}) // of the old sequence, where "b" is
	s.deliver(taken...)
	s.must(s.inbox.Flush(t.Context()))
	s.round() // the receipt for 3 has come, but 2 is the last position
	s.clock.Advance(10 * time.Second)
	s.round()
	again := s.stream.take()
	same(t, "message ids", ids(again), []string{"a/2", "d/2"})
	same(t, "positions", positions(t, again), []int{1, 2})
	s.deliver(again...)
	s.confirm()
	same(t, "applied", s.applied, []string{"a", "b", "c", "d"})
	same(t, "held", s.held(), []string{})
}

// running starts senders that run until the test ends, with the system's clock.
func (s *stage) running(n int) (stop []func()) {
	for range n {
		sender := s.newSender(clock.System())
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

// leaders are the database sessions that hold the lock of an active sender of the stage.
func (s *stage) leaders() []int {
	rows, err := s.from.Query(s.t.Context(), `SELECT a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND a.application_name = current_setting('application_name')`)
	s.must(err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	s.must(err)
	return pids
}

func TestOneOfTwoReplicasPublishesAndTheOtherTakesOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.running(1)[0]
	s.add("a")
	eventually(t, "the first replica publishes", func() bool { return s.stream.stored() == 1 })
	s.running(1)
	s.add("b")
	eventually(t, "it goes on", func() bool { return s.stream.stored() == 2 })
	same(t, "active senders", len(s.leaders()), 1)
	first()
	s.add("c")
	eventually(t, "the second replica takes over", func() bool { return s.stream.stored() == 3 })
	same(t, "message ids", ids(s.stream.take()), []string{"a", "b", "c"})
}

func TestAFollowersCommitWakesTheActiveSender(t *testing.T) {
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
	eventually(t, "the active sender publishes", func() bool { return s.stream.stored() == 1 })
}

// Where many events come, each waits a little for the others, and one that comes alone for none.
func TestARoundThatPublishedMuchIsFollowedLater(t *testing.T) {
	t.Parallel()
	for sent, want := range map[int]time.Duration{0: 5 * time.Millisecond, 1: 5 * time.Millisecond, 4: 10 * time.Millisecond, 10: 25 * time.Millisecond, 256: 25 * time.Millisecond} {
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
	eventually(t, "the sender publishes many", func() bool { return s.stream.stored() == 20 })
	s.add("late")
	sender.Wake()
	s.clock.AwaitTimers(2)
	s.clock.Advance(outbox.Pause(20) - time.Millisecond)
	same(t, "stored before the next round's time", s.stream.stored(), 20)
	s.clock.Advance(time.Millisecond)
	eventually(t, "the sender publishes what came late", func() bool { return s.stream.stored() == 21 })
}

func TestASenderSurvivesTheDeathOfItsConnections(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.running(1)
	s.add("a")
	eventually(t, "it publishes", func() bool { return s.stream.stored() == 1 })
	var killed int
	s.must(s.to.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = $1`, s.from.Config().ConnConfig.RuntimeParams["application_name"]).Scan(&killed))
	if killed == 0 {
		t.Fatal("found no connection to kill")
	}
	eventually(t, "the pool works again", func() bool { return s.from.Ping(t.Context()) == nil })
	s.add("b")
	eventually(t, "it publishes again", func() bool { return s.stream.stored() == 2 })
	same(t, "active senders", len(s.leaders()), 1)
}
