package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/outbox/internal/query"
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
	// Connected reports whether there is a connection, as far as is known.
	Connected() bool
}

// SenderDeps is what a Sender needs.
type SenderDeps struct {
	// Pool is in the service's schema. A sender takes one connection out of it, or past its pooler, for as long as it is active.
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

// Sender publishes what is in the lanes of the outbox that it has. doc.go describes how.
type Sender struct {
	SenderDeps
	// wake is for commits of this process, of which the other senders have to hear, and news for everything else.
	wake, news chan struct{}

	// sent has the lanes of this sender, with the place up to which nothing waits for its first publication, and overdue is when something
	// may have to be sent again. alone is set if there is no other sender. They belong to the rounds, and hold only what the database
	// says as well; zero is right at any time.
	sent    map[int16]int64
	overdue time.Time
	alone   bool
	// refused are the parts of lanes whose next event the bus does not take, though it is connected. soon is set if another transaction
	// gives places to what this sender has found.
	refused map[part]refusal
	soon    bool

	mu       sync.Mutex
	receipts map[receiptOf]int64 // the latest marks that have not been looked at
	lost     bool                // what was sent before may be gone: it is sent again before anything else
	anew     bool                // another sender has come, or left lanes
}

// receiptOf is what a mark is about: a receiver, and a sequence, which is that of a lane.
type receiptOf struct{ receiver, epoch string }

// NewSender is a sender that Run sets to work.
func NewSender(d SenderDeps) *Sender {
	if d.ResendAfter <= 0 {
		d.ResendAfter = 10 * time.Second
	}
	if d.ResendAtMost <= 0 {
		d.ResendAtMost = time.Minute
	}
	d.ResendAtMost = max(d.ResendAtMost, d.ResendAfter)
	return &Sender{
		SenderDeps: d, wake: make(chan struct{}, 1), news: make(chan struct{}, 1), sent: map[int16]int64{}, refused: map[part]refusal{},
		receipts: map[receiptOf]int64{},
	}
}

const (
	// pollEvery is how soon a sender finds what nobody woke it for, and that the lanes are to be shared anew.
	pollEvery = time.Second
	// aloneEvery is how soon a sender that is alone looks for others, unless it hears of one. Nobody's lanes wait for it.
	aloneEvery = 10 * time.Second
	// A round costs the same whether it publishes one event or many, here, in the database and in the stream, which writes to its disk
	// once for a batch, and beside that of the commits. So the next one begins as much later as it published more: forEach event, and
	// betweenRounds at least and betweenFull at most. An event that comes alone waits for nothing, one right behind another no longer
	// than the least, and only where events come by the hundred every second does each wait for the others.
	betweenRounds = 5 * time.Millisecond
	forEach       = 2500 * time.Microsecond
	betweenFull   = 25 * time.Millisecond
	// leaveAfter is how long a sender keeps its lanes when it has no connection to the bus: another replica may have one.
	leaveAfter = 5 * time.Second
	// lookSoon is how soon it looks again for events that another transaction was about to give places to.
	lookSoon = 50 * time.Millisecond
	// longestPause bounds the pause before the next try to lead when the database is away.
	longestPause = 5 * time.Second
)

// Wake notifies the senders, here and in other replicas, that something was committed. It never blocks.
func (s *Sender) Wake() { poke(s.wake) }

// look has this sender look, for a reason that concerns no other.
func (s *Sender) look() { poke(s.news) }

// notified has this sender look because another says so; anew is set if the lanes are to be shared anew.
func (s *Sender) notified(anew bool) {
	if anew {
		s.mu.Lock()
		s.anew = true
		s.mu.Unlock()
	}
	s.look()
}

// shareAnew reports whether the lanes are to be shared anew since it was last asked.
func (s *Sender) shareAnew() (anew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	anew, s.anew = s.anew, false
	return anew
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
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

// follow waits for the next time to try to be a sender, and meanwhile passes on to the only one what Wake says.
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
			if err := query.New(s.Pool).Notify(ctx, ""); err != nil {
				return // the poll of the sender finds it
			}
		}
	}
}

// lead publishes for as long as this is one of the senders. It returns false, and no error, if one of the release before is the only one,
// or the bus is away; true says that it was a sender.
func (s *Sender) lead(ctx context.Context) (led bool, err error) {
	if !s.Bus.Connected() {
		return false, nil
	}
	own, err := s.join(ctx)
	if own == nil || err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var listener sync.WaitGroup
	defer func() {
		cancel(nil)
		listener.Wait()
		own.close(ctx)
	}()
	if err := s.Bus.OnHint(ctx, receiptSubject(s.Name), s.take); err != nil {
		return true, fmt.Errorf("listen for receipts: %w", err)
	}
	listener.Go(func() { cancel(own.listen(ctx, s.notified)) })
	s.Log.InfoContext(ctx, "outbox sender is active")
	clear(s.sent)
	clear(s.refused)
	err = s.rounds(ctx, own)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return true, err
}

// rounds publishes and takes receipts until ctx ends or the database fails.
func (s *Sender) rounds(ctx context.Context, own *session) error {
	var shared, away time.Time
	for {
		began := s.Clock.Now()
		every := pollEvery
		if s.alone {
			every = aloneEvery
		}
		if s.shareAnew() || began.Sub(shared) >= every {
			if err := s.share(ctx, own); err != nil {
				return err
			}
			shared = began
		}
		sent, more, err := 0, false, errBusAway
		if s.Bus.Connected() {
			sent, more, err = s.round(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errBusAway):
			if away.IsZero() {
				away = began
			}
			if began.Sub(away) >= leaveAfter {
				s.setLost(true) // receipts are missed meanwhile, and the stream may come back empty
				return fmt.Errorf("%w; another replica may, and is left the lanes", err)
			}
			s.Log.WarnContext(ctx, "outbox waits for the bus", telemetry.KeyError, err)
		case err != nil:
			return err
		case more:
			away = time.Time{}
			s.passOn(ctx, own)
			continue
		default:
			away = time.Time{}
		}
		s.wait(ctx, own, !away.IsZero(), began.Add(pause(sent)))
	}
}

// wait waits for something to do, for pollEvery at most, and then for the time of the next round: what is added meanwhile goes with it.
// Where the bus is away, being woken would not help, and the bus has waited for seconds itself.
func (s *Sender) wait(ctx context.Context, own *session, away bool, next time.Time) {
	poll := pollEvery
	if s.soon {
		poll = lookSoon
	}
	timer := s.Clock.NewTimer(poll)
	defer timer.Stop()
	news := s.news
	if away {
		news = nil
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			return
		case <-s.wake:
			s.notify(ctx, own)
			if away {
				continue
			}
		case <-news:
			s.passOn(ctx, own)
		}
		_ = clock.Sleep(ctx, s.Clock, next.Sub(s.Clock.Now())) // ends early only with ctx
		return
	}
}

// passOn notifies the other senders of what Wake has said meanwhile.
func (s *Sender) passOn(ctx context.Context, own *session) {
	select {
	case <-s.wake:
		s.notify(ctx, own)
	default:
	}
}

// notify notifies the other senders of commits of this process, whose events may be in their lanes.
func (s *Sender) notify(ctx context.Context, own *session) {
	if !s.alone {
		_ = query.New(s.Pool).Notify(ctx, own.name()) // else their poll finds it
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
