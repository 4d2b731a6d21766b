package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/natscluster"
	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
)

func TestMain(m *testing.M) {
	natscluster.Main()
	if os.Getenv(childVariable) != "" {
		childSender() // until it is killed
	}
	goleak.VerifyTestMain(m, bustest.Leftovers()...)
}

// message is what the stream stores.
type message struct {
	id    string
	event event.Event
}

// stream is a bus in memory that loses, drops and refuses what a test wants.
type stream struct {
	mu       sync.Mutex
	messages []message
	ids      map[string]bool
	listener map[string]func([]byte)
	// moved is set if the connection is another one than at the beginning of what is being published.
	moved bool
	// loseHints loses receipts.
	loseHints bool
	// away is set if there is no connection.
	away bool
	// before is asked before a message is stored; its error is the publisher's.
	before func(e event.Event) error
	// after is called when a message is stored.
	after func(e event.Event)
}

var (
	_ outbox.Publisher = (*stream)(nil)
	_ outbox.Hinter    = (*stream)(nil)
)

func newStream() *stream {
	return &stream{ids: map[string]bool{}, listener: map[string]func([]byte){}}
}

func (s *stream) PublishAll(ctx context.Context, events []event.Sealed, msgIDs []string) (errs []error) {
	for i, sealed := range events {
		e, err := sealed.Event()
		if err != nil {
			return append(errs, err)
		}
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		if moved && i > 0 {
			break
		}
		err = s.store(ctx, e, msgIDs[i])
		errs = append(errs, err)
		if err != nil && !fault.Is(err, fault.Denied) {
			break
		}
	}
	return errs
}

func (s *stream) store(ctx context.Context, e event.Event, msgID string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		if err := s.before(e); err != nil {
			return err
		}
	}
	if !s.ids[msgID] {
		s.ids[msgID] = true
		s.messages = append(s.messages, message{msgID, e})
	}
	if s.after != nil {
		s.after(e)
	}
	return nil
}

func (s *stream) Hint(subject string, payload []byte) {
	s.mu.Lock()
	fn := s.listener[subject]
	lose := s.loseHints
	s.mu.Unlock()
	if fn != nil && !lose {
		fn(payload)
	}
}

func (s *stream) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.away
}

func (s *stream) OnHint(_ context.Context, subject string, fn func([]byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener[subject] = fn
	return nil
}

// take empties the stream.
func (s *stream) take() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.messages
	s.messages = nil
	return taken
}

func (s *stream) stored() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages)
}

// stage is a sending service, "workflow", a receiving one, "domain", and the stream between them.
type stage struct {
	t       *testing.T
	clock   *clocktest.Clock
	stream  *stream
	from    *pgxpool.Pool
	sending pg.Config // of from
	to      *pgxpool.Pool
	sender  *outbox.Sender
	inbox   *outbox.Inbox
	applied []string // the ids of the events that were applied, in order
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, clock: clocktest.New(time.Unix(1_800_000_000, 0)), stream: newStream()}
	s.from, s.sending = pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	s.to, _ = pgtest.New(t, pgtest.Migration{Name: "outbox", FS: outbox.Migrations()})
	s.sender = s.newSender(s.clock)
	s.inbox = s.newInbox("domain")
	s.hear()
	return s
}

func (s *stage) newSender(c clock.Clock, receivers ...string) *outbox.Sender {
	if receivers == nil {
		receivers = []string{"domain"}
	}
	return outbox.NewSender(outbox.SenderDeps{
		Pool: s.from, Bus: s.stream, Clock: c, Log: slog.New(slog.DiscardHandler), Name: "workflow", Receivers: receivers,
	})
}

func (s *stage) newInbox(name string) *outbox.Inbox {
	return outbox.NewInbox(outbox.InboxDeps{Pool: s.to, Bus: s.stream, Clock: s.clock, Log: slog.New(slog.DiscardHandler), Name: name})
}

// hear has the sender take receipts, as Run does.
func (s *stage) hear() {
	if err := s.stream.OnHint(s.t.Context(), "cd.receipt.workflow", s.sender.Take); err != nil {
		s.t.Fatal(err)
	}
}

// started is an event of the run of rollout 7: all of them are in one lane.
func started(id string) event.Event { return startedBy("rollout-7", id) }

// startedBy is an event of a run.
func startedBy(run, id string) event.Event {
	e, err := event.New(event.Header{
		ID: id, Source: "/services/workflow", Organization: 1, Correlation: run, Causation: "k-" + id, Time: time.Unix(1_800_000_000, 0),
	}, event.RolloutStarted{RolloutID: 7})
	if err != nil {
		panic(err)
	}
	e.SetExtension(event.ExtensionTraceParent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	return e
}

// sealed are events as Add takes them.
func sealed(events ...event.Event) []event.Sealed {
	all := make([]event.Sealed, len(events))
	for i, e := range events {
		var err error
		if all[i], err = event.Seal(e); err != nil {
			panic(err)
		}
	}
	return all
}

func (s *stage) add(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.must(pg.InTx(s.t.Context(), s.from, func(tx pgx.Tx) error { return outbox.Add(s.t.Context(), tx, sealed(started(id))...) }))
	}
}

// addMany adds n events in one transaction, and answers their ids, which are in their order.
func (s *stage) addMany(first, n int) (ids []string) {
	s.t.Helper()
	events := make([]event.Event, n)
	for i := range events {
		events[i] = started(fmt.Sprintf("e%05d", first+i))
		ids = append(ids, events[i].ID())
	}
	s.must(pg.InTx(s.t.Context(), s.from, func(tx pgx.Tx) error { return outbox.Add(s.t.Context(), tx, sealed(events...)...) }))
	return ids
}

func (s *stage) round() {
	s.t.Helper()
	s.must(s.sender.Round(s.t.Context()))
}

// deliver gives messages to the receiver, each in its own transaction.
func (s *stage) deliver(messages ...message) {
	s.t.Helper()
	for _, m := range messages {
		s.must(pg.InTx(s.t.Context(), s.to, func(tx pgx.Tx) error {
			first, err := s.inbox.Claim(s.t.Context(), tx, m.event)
			if first {
				s.applied = append(s.applied, m.event.ID())
			}
			return err
		}))
	}
}

// confirm lets receipts get through.
func (s *stage) confirm() {
	s.t.Helper()
	s.must(s.inbox.Flush(s.t.Context()))
	s.round()
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// held are the ids in the outbox, in order.
func (s *stage) held() []string {
	s.t.Helper()
	rows, err := s.from.Query(s.t.Context(), `SELECT event_id FROM outbox ORDER BY id`)
	s.must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.must(err)
	return ids
}

func (s *stage) mark() int64 {
	s.t.Helper()
	var mark int64
	s.must(s.to.QueryRow(s.t.Context(), `SELECT coalesce(max(mark), 0) FROM inbox_mark`).Scan(&mark))
	return mark
}

func position(t *testing.T, m message) int {
	t.Helper()
	n, err := strconv.Atoi(event.Extension(m.event, outbox.ExtensionPosition))
	if err != nil {
		t.Fatalf("position of %s: %v", m.id, err)
	}
	return n
}

func positions(t *testing.T, messages []message) []int {
	t.Helper()
	ns := make([]int, len(messages))
	for i, m := range messages {
		ns[i] = position(t, m)
	}
	return ns
}

func ids(messages []message) []string {
	s := make([]string, len(messages))
	for i, m := range messages {
		s[i] = m.id
	}
	return s
}
