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
# HELP lockstep_outbox_events Events of the outbox that are not confirmed by their receivers; counted up to 100000.
# TYPE lockstep_outbox_events gauge
lockstep_outbox_events 3
# HELP lockstep_outbox_failing_events Unconfirmed events of the outbox that the bus has refused.
# TYPE lockstep_outbox_failing_events gauge
lockstep_outbox_failing_events 1
# HELP lockstep_outbox_senders Replicas that send events of the outbox, each in lanes of its own.
# TYPE lockstep_outbox_senders gauge
lockstep_outbox_senders 0
# HELP lockstep_outbox_unsent_lanes Lanes of the outbox that no replica sends at the moment.
# TYPE lockstep_outbox_unsent_lanes gauge
lockstep_outbox_unsent_lanes 8
`
	compare := func() error {
		return testutil.CollectAndCompare(outbox.Metrics(s.from), strings.NewReader(want), "lockstep_outbox_events",
			"lockstep_outbox_failing_events", "lockstep_outbox_senders", "lockstep_outbox_unsent_lanes")
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
	s.stream.away = true
	s.stream.before = func(e event.Event) error {
		if s.stream.away && e.ID() == "b" {
			return fault.New(fault.Unavailable, "nats is not connected")
		}
		return nil
	}
	if err := s.sender.Round(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("round answered %v", err)
	}
	same(t, "message ids", ids(s.stream.take()), []string{"a"})
	s.stream.away = false
	s.round()
	same(t, "message ids", ids(s.stream.take()), []string{"b", "c"})
}

func TestACallToAClusterIsDoneWithOnceTheStreamHasIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	call, err := event.New(event.Header{ID: "call", Source: "/services/workflow", Time: time.Unix(0, 0)},
		event.FunctionCalled{
			AgentID: 42, CallID: "1/7", Function: "k8s.get", Arguments: json.RawMessage(`{}`), Attempt: 1,
			Deadline: "2026-03-25T10:05:00Z",
		})
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
	_, err := s.from.Exec(t.Context(), `DELETE FROM outbox WHERE event_id <> 'a'; UPDATE outbox_lane SET place = least(place, 1)`)
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
