package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Publisher is what a Sender needs of the bus.
type Publisher interface {
	// PublishAll stores events in the order given, each under its message id, and answers one error, or nil, for each that it
	// has tried; a second time within the stream's window a message id is dropped. Only Invalid, Denied and Terminal errors mean
	// that it is useless to try the event again soon; the others continue then. Any other error is the last one: nothing after that
	// event is stored, and the event itself may be or not. It may also end early without an error, if the connection was lost
	// and is back.
	PublishAll(ctx context.Context, events []event.Sealed, msgIDs []string) []error
	// OnHint calls fn for the hints on the subject until ctx ends; it returns when it is subscribed. A nil payload means that the
	// connection was lost and is back: receipts may have been missed, and the stream may have lost everything.
	OnHint(ctx context.Context, subject string, fn func(payload []byte)) error
}

// SenderDeps is what a Sender needs.
type SenderDeps struct {
	// Pool is in the service's schema. The active sender takes one connection out of it, or past its pooler, for as long as it is active.
	Pool  *pgxpool.Pool
	Bus   Publisher
	Clock clock.Clock
	Log   *slog.Logger
	// Name is the service: "workflow".
	Name string
	// Receivers are the services that confirm what they get: {"domain"}. With none, an event is done with once the
	// stream has it.
	Receivers []string
	// ResendAfter is how long an event waits for its receipt before it is sent again; the wait doubles each time.
	// 0: ten seconds.
	ResendAfter time.Duration
	// ResendAtMost bounds that wait. 0: one minute.
	ResendAtMost time.Duration
}

// Sender publishes what is in the outbox. doc.go describes how.
type Sender struct {
	SenderDeps
	wake chan struct{}

	// sent is the position up to which nothing waits for its first publication, and overdue when something may have to be
	// sent again. Both belong to the rounds, and hold only what the table says as well; zero is right at any time.
	sent    int64
	overdue time.Time

	mu       sync.Mutex
	receipts map[string]receipt // the latest of each receiver that has not been looked at
	lost     bool               // what was sent before may be gone: it is sent again before anything else
}

// NewSender is a sender that Run sets to work.
func NewSender(d SenderDeps) *Sender {
	if d.ResendAfter <= 0 {
		d.ResendAfter = 10 * time.Second
	}
	if d.ResendAtMost <= 0 {
		d.ResendAtMost = time.Minute
	}
	d.ResendAtMost = max(d.ResendAtMost, d.ResendAfter)
	return &Sender{SenderDeps: d, wake: make(chan struct{}, 1), receipts: map[string]receipt{}}
}

const (
	// pollEvery is how soon the active sender finds what nobody woke it for, and a follower finds that it should lead.
	pollEvery = time.Second
	// A round costs the same whether it publishes one event or many, here, in the database and in the stream, which writes to its disk
	// once for a batch, and beside that of the commits. So the next one begins as much later as it published more: forEach event, and
	// betweenRounds at least and betweenFull at most. An event that comes alone waits for nothing, one right behind another no longer
	// than the least, and only where events come by the hundred every second does each wait for the others.
	betweenRounds = 5 * time.Millisecond
	forEach       = 2500 * time.Microsecond
	betweenFull   = 25 * time.Millisecond
	// longestPause bounds the pause before the next try to lead when the database is away.
	longestPause = 5 * time.Second
)

// Wake notifies the active sender, here or in another replica, that something was committed. It never blocks.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends, and then returns nil. Errors of the database and the bus are logged and tried again.
func (s *Sender) Run(ctx context.Context) error {
	if !serviceName.MatchString(s.Name) {
		return fmt.Errorf("outbox sender: name: found %q; expected letters, digits, - and _", s.Name)
	}
	pause := pollEvery
	for ctx.Err() == nil {
		led, err := s.lead(ctx)
		switch {
		case ctx.Err() != nil: // whatever lead says, it says because of that
		case err != nil:
			s.Log.WarnContext(ctx, "outbox sender interrupted", telemetry.KeyError, err, telemetry.KeyDelay, pause.Milliseconds())
			_ = clock.Sleep(ctx, s.Clock, pause) // ends early only with ctx
			pause = min(2*pause, longestPause)
			if led {
				pause = pollEvery
			}
		default:
			pause = pollEvery
			s.follow(ctx)
		}
	}
	return nil
}

// follow waits for the next time to try to lead, and meanwhile passes on to the active sender what Wake says.
func (s *Sender) follow(ctx context.Context) {
	timer := s.Clock.NewTimer(pollEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			return
		case <-s.wake:
			if err := query.New(s.Pool).Notify(ctx); err != nil {
				return // the poll of the active sender finds it
			}
		}
	}
}

// lead publishes for as long as this sender holds the lock. It returns false, and no error, if another one has it; true
// says that it was the active one.
func (s *Sender) lead(ctx context.Context) (led bool, err error) {
	conn, err := s.lock(ctx)
	if conn == nil || err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var listener sync.WaitGroup
	defer func() {
		cancel(nil)
		listener.Wait()
		// The lock ends with the connection, whatever state that is in.
		closing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_ = conn.Close(closing)
	}()
	schema, err := query.New(conn).Schema(ctx)
	if err != nil {
		return true, pg.Classify(err, "ask for the schema")
	}
	if err := query.New(conn).Listen(ctx); err != nil {
		return true, pg.Classify(err, "listen for new events")
	}
	if err := s.Bus.OnHint(ctx, receiptSubject(s.Name), s.take); err != nil {
		return true, fmt.Errorf("listen for receipts: %w", err)
	}
	listener.Go(func() { cancel(s.listen(ctx, conn, schema)) })
	s.Log.InfoContext(ctx, "outbox sender is active")
	s.forget()
	err = s.rounds(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return true, err
}

// lock takes the advisory lock with a connection of its own; nil if another sender has it.
func (s *Sender) lock(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pg.Session(ctx, s.Pool)
	if err != nil {
		return nil, err
	}
	ok, err := query.New(conn).TryLock(ctx, s.Name)
	if err != nil || !ok {
		conn.Release()
		return nil, pg.Classify(err, "take the lock of the active sender")
	}
	return conn.Hijack(), nil
}

// listen turns notifications of this schema into wakes. It returns when the connection, and with it the lock, is gone.
func (s *Sender) listen(ctx context.Context, conn *pgx.Conn, schema string) error {
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return pg.Classify(err, "hold the lock of the active sender")
		}
		if n.Payload == schema {
			s.Wake()
		}
	}
}

// rounds publishes and takes receipts until ctx ends or the database fails.
func (s *Sender) rounds(ctx context.Context) error {
	for {
		began := s.Clock.Now()
		sent, more, err := s.round(ctx)
		woken := s.wake
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errBusAway):
			s.Log.WarnContext(ctx, "outbox waits for the bus", telemetry.KeyError, err)
			woken = nil // it would not help, and the bus has waited for seconds itself
		case err != nil:
			return err
		case more:
			continue
		}
		timer := s.Clock.NewTimer(pollEvery)
		select {
		case <-ctx.Done():
		case <-woken:
			// What is added while it waits goes with this round.
			_ = clock.Sleep(ctx, s.Clock, pause(sent)-s.Clock.Now().Sub(began)) // ends early only with ctx
		case <-timer.C():
		}
		timer.Stop()
	}
}

// pause is how long after the beginning of a round that published so many events the next one begins.
func pause(sent int) time.Duration {
	return min(max(betweenRounds, time.Duration(sent)*forEach), betweenFull)
}

// errBusAway ends a round that the bus does not let finish.
var errBusAway = errors.New("the bus does not take events")

// hopeless reports whether it is useless to publish the same event again soon.
func hopeless(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Invalid, fault.Denied, fault.Terminal:
		return true
	default:
		return false
	}
}
