package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

func TestRepeatedAndReorderedEventsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.round()
	messages := s.stream.take()
	s.deliver(messages[2], messages[2])
	s.confirm()
	same(t, "mark while the first two are missing", s.mark(), int64(0))
	s.deliver(messages[0], messages[2], messages[0])
	s.confirm()
	same(t, "mark while the second is missing", s.mark(), int64(1))
	same(t, "held", s.held(), []string{"b", "c"})
	s.deliver(messages[1], messages[1])
	s.confirm()
	same(t, "mark", s.mark(), int64(3))
	same(t, "applied", s.applied, []string{"c", "a", "b"})
	same(t, "held", s.held(), []string{})
}

func TestAClaimThatIsUndoneDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a")
	s.round()
	m := s.stream.take()[0]
	undone := errors.New("undone")
	err := pg.InTx(t.Context(), s.to, func(tx pgx.Tx) error {
		if first, err := s.inbox.Claim(t.Context(), tx, m.event); !first || err != nil {
			t.Errorf("the first claim answered %v, %v", first, err)
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	s.confirm()
	same(t, "mark", s.mark(), int64(0))
	s.deliver(m)
	same(t, "applied", s.applied, []string{"a"})
}

func TestClaimsOfSeveralCountAsSingleOnes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.round()
	messages := s.stream.take()
	s.deliver(messages[1])
	s.must(pg.InTx(t.Context(), s.to, func(tx pgx.Tx) error {
		firsts, err := s.inbox.ClaimAll(t.Context(),
			tx, []event.Event{messages[0].event, messages[1].event, messages[2].event, messages[0].event})
		same(t, "first times", firsts, []bool{true, false, true, false})
		return err
	}))
	s.confirm()
	same(t, "mark", s.mark(), int64(3))
	same(t, "held", s.held(), []string{})
}

func TestConcurrentClaimsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a")
	s.round()
	e := s.stream.take()[0].event
	var all sync.WaitGroup
	firsts := make(chan bool, 8)
	for range cap(firsts) {
		all.Go(func() {
			s.must(pg.InTx(t.Context(), s.to, func(tx pgx.Tx) error {
				first, err := s.inbox.Claim(t.Context(), tx, e)
				firsts <- first
				return err
			}))
		})
	}
	all.Wait()
	close(firsts)
	n := 0
	for first := range firsts {
		if first {
			n++
		}
	}
	same(t, "claims that were the first", n, 1)
}

func TestARejectedEventIsClosedAndTheMarkPassesIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b")
	s.round()
	messages := s.stream.take()
	s.must(s.inbox.Reject(t.Context(), messages[0].event, "rollout 7 does not exist"))
	s.deliver(messages...)
	s.confirm()
	same(t, "applied", s.applied, []string{"b"})
	same(t, "held", s.held(), []string{})
	var reason string
	s.must(s.to.QueryRow(t.Context(), `SELECT rejected_reason FROM inbox WHERE event_id = 'a'`).Scan(&reason))
	same(t, "reason", reason, "rollout 7 does not exist")
}

func TestAnAppliedEventCannotBeRejectedAnyMore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a")
	s.round()
	m := s.stream.take()[0]
	s.deliver(m)
	s.must(s.inbox.Reject(t.Context(), m.event, "too late"))
	var rejected bool
	s.must(s.to.QueryRow(t.Context(), `SELECT rejected_reason IS NOT NULL FROM inbox`).Scan(&rejected))
	same(t, "rejected", rejected, false)
}

func TestAnEventOfNoOutboxIsClaimedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := message{"a", started("a")}
	s.deliver(m, m)
	s.confirm()
	same(t, "applied", s.applied, []string{"a"})
	same(t, "mark", s.mark(), int64(0))
}

func TestOnesOwnEventsAreClaimedWithoutAReceipt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.inbox = s.newInbox("workflow")
	s.add("a")
	s.round()
	m := s.stream.take()[0]
	s.deliver(m, m)
	s.must(s.inbox.Flush(t.Context()))
	same(t, "applied", s.applied, []string{"a"})
	same(t, "mark", s.mark(), int64(0))
}

func TestAMalformedPlaceIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, spoil := range map[string]func(*event.Event){
		outbox.ExtensionPosition: func(e *event.Event) { e.SetExtension(outbox.ExtensionPosition, "-1") },
		outbox.ExtensionBase:     func(e *event.Event) { e.SetExtension(outbox.ExtensionBase, "9") },
		outbox.ExtensionSender:   func(e *event.Event) { e.SetExtension(outbox.ExtensionSender, "a.>") },
	} {
		e := started(name)
		e.SetExtension(outbox.ExtensionPosition, "3")
		spoil(&e)
		err := pg.InTx(t.Context(), s.to, func(tx pgx.Tx) error {
			_, err := s.inbox.Claim(t.Context(), tx, e)
			return err
		})
		fields := fault.FieldsOf(err)
		if len(fields) != 1 || fields[0].Name != name {
			t.Errorf("%s: answered %v", name, err)
		}
		s.must(s.inbox.Reject(t.Context(), e, "malformed"))
	}
}

func TestAReceiverThatStartsLateBeginsWhereTheSenderStillIs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b")
	s.round()
	s.deliver(s.stream.take()...)
	s.confirm()
	_, err := s.to.Exec(t.Context(), `TRUNCATE inbox, inbox_mark`) // the receiver is set up anew
	s.must(err)
	s.inbox = s.newInbox("domain")
	s.add("c")
	s.round()
	s.deliver(s.stream.take()...)
	s.confirm()
	same(t, "mark", s.mark(), int64(3))
	same(t, "held", s.held(), []string{})
}

func TestRunSendsReceiptsForWhatWasCommittedLate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.inbox = outbox.NewInbox(outbox.InboxDeps{Pool: s.to, Bus: s.stream, Clock: clock.System(), Log: s.sender.Log, Name: "domain"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.inbox.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run answered %v", err)
		}
	})
	s.add("a", "b")
	s.round()
	messages := s.stream.take()
	tx, err := s.to.Begin(t.Context())
	s.must(err)
	_, err = s.inbox.Claim(t.Context(), tx, messages[0].event)
	s.must(err)
	s.deliver(messages[1])
	wait.For(t, "Run has looked", func() bool {
		var n int
		s.must(s.to.QueryRow(t.Context(), `SELECT count(*) FROM inbox_mark`).Scan(&n))
		return n == 1
	})
	s.must(tx.Commit(t.Context()))
	wait.For(t, "both are confirmed", func() bool {
		s.round()
		return len(s.held()) == 0
	})
}

func TestOldEventsAreForgottenOnceTheMarkHasPassedThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add("a", "b", "c")
	s.round()
	messages := s.stream.take()
	s.deliver(messages[0], messages[2])
	s.confirm()
	s.clock.Advance(31 * 24 * time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.inbox.Run(ctx) }()
	var left []string
	wait.For(t, "one event is forgotten", func() bool {
		rows, err := s.to.Query(t.Context(), `SELECT event_id FROM inbox`)
		s.must(err)
		left, err = pgx.CollectRows(rows, pgx.RowTo[string])
		s.must(err)
		return len(left) == 1
	})
	cancel()
	s.must(<-done)
	same(t, "remembered", slices.Sorted(slices.Values(left)), []string{"c"})
}

func TestTheTablesCanBeUnmadeAndMadeAgain(t *testing.T) {
	t.Parallel()
	_, c := pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	if err := pg.Rollback(t.Context(), c, "outbox", outbox.Migrations(), 0); err != nil {
		t.Fatal(err)
	}
	if err := pg.Migrate(t.Context(), c, "outbox", outbox.Migrations()); err != nil {
		t.Fatal(err)
	}
}
