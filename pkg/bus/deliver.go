package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// loop is one call of Consume.
type loop struct {
	conn     *Conn
	consumer Consumer
	handle   Handler
	rejected Rejected
	log      *slog.Logger
	slots    chan struct{}
	running  sync.WaitGroup
	ended    chan struct{} // closed when no more messages are asked for
}

// outcome is what happens to a message.
type outcome string

const (
	acknowledged outcome = "acknowledged"
	retried      outcome = "retried"
	interrupted  outcome = "interrupted"
	terminated   outcome = "terminated"
)

// settleWithin bounds the confirmation of an outcome; unconfirmed, the message comes again.
const settleWithin = 5 * time.Second

// start handles msg on its own goroutine and frees the slot that the caller took. ctx is Consume's own: what interrupts
// the subscription does not interrupt handlers.
func (l *loop) start(ctx context.Context, msg jetstream.Msg) {
	l.running.Go(func() {
		defer func() { <-l.slots }()
		l.deliver(ctx, msg)
	})
}

// deliver handles one message to its end and writes the one line about it.
func (l *loop) deliver(ctx context.Context, msg jetstream.Msg) {
	if l.skips(msg) {
		_ = msg.Ack() // unconfirmed, it comes again and is skipped again
		return
	}
	started := l.conn.clock.Now()
	d := Delivery{Attempt: attemptOf(msg), Subject: msg.Subject()}
	var err error
	d.Event, err = decode(ctx, msg.Subject(), msg.Headers(), msg.Data())
	kind, age := "invalid", time.Duration(0)
	if err == nil {
		kind, age = kindOf(d), ageOf(d, started)
	}
	ctx, endSpan := telemetry.StartProcessing(telemetry.ExtractTrace(ctx, d.Event), msg.Headers().Get(sentHeader), "process "+kind,
		append(telemetry.EventAttributes("process", d.Subject, d.Event.ID()), telemetry.ConsumerAttribute(l.consumer.Durable))...)
	if err == nil {
		err = l.run(ctx, msg, d)
	}
	what, delay := l.judge(ctx, d, err)
	unsettled := l.settle(ctx, msg, d, what, delay, err)
	endSpan(problem(what, err))
	l.report(ctx, d, what, result{kind: kind, age: age, took: l.conn.clock.Now().Sub(started), delay: delay, err: err, unsettled: unsettled})
}

// skips reports whether a message is acknowledged unread.
func (l *loop) skips(msg jetstream.Msg) bool {
	skip := l.consumer.Skip
	return skip != "" && msg.Headers().Get(sourceHeader) == skip || !l.consumer.External && event.IsExternal(msg.Subject())
}

// kindOf is the type under which an event is counted: those of the catalogue each, all others together.
func kindOf(d Delivery) string {
	if event.IsExternal(d.Subject) {
		return "external"
	}
	return d.Event.Type()
}

// ageOf is how long ago an event happened; 0 where it does not say when.
func ageOf(d Delivery, now time.Time) time.Duration {
	if d.Event.Time().IsZero() {
		return 0
	}
	return now.Sub(d.Event.Time())
}

// rejection is the reason for which an event is given up, in one word of few: what is wrong with it, or that it has failed too often.
func rejection(err error) string {
	fields := fault.FieldsOf(err)
	switch class := fault.ClassOf(err); {
	case class == fault.Invalid && len(fields) == 0:
		return "malformed"
	case class == fault.Invalid:
		name, _, _ := strings.Cut(fields[0].Name, ".")
		switch name {
		case "specversion", "id", "source", "type", "subject", "data", event.ExtensionOrganization, event.ExtensionCorrelation:
			return name
		default:
			return "other"
		}
	case fault.Describe(class).Consumer == fault.Retry:
		return "failed"
	default:
		return class.String()
	}
}

// result is what came of one attempt, for the line about it.
type result struct {
	// kind is the type of the event, or "invalid": what is not of the catalogue is not counted under whatever name it has.
	kind             string
	age, took, delay time.Duration
	err, unsettled   error
}

// report writes the one line about an attempt, and counts it.
func (l *loop) report(ctx context.Context, d Delivery, what outcome, r result) {
	telemetry.ObserveEvent(l.consumer.Durable, r.kind, string(what), r.took, r.age)
	attrs := []slog.Attr{
		slog.String(telemetry.KeySubject, d.Subject), slog.String(telemetry.KeyEvent, d.Event.ID()),
		slog.String(telemetry.KeyEventType, d.Event.Type()),
		slog.String(telemetry.KeyOrganization, event.Extension(d.Event, event.ExtensionOrganization)),
		slog.Int(telemetry.KeyAttempt, d.Attempt), telemetry.Milliseconds(telemetry.KeyDuration, r.took),
		slog.String(telemetry.KeyOutcome, string(what)),
	}
	level := slog.LevelInfo
	if what == terminated {
		telemetry.RejectedEvent(l.consumer.Durable, rejection(r.err))
	}
	if r.err != nil {
		class := fault.ClassOf(r.err)
		level = fault.Describe(class).Level
		attrs = append(attrs, slog.String(telemetry.KeyClass, class.String()), slog.Any(telemetry.KeyError, r.err),
			telemetry.Milliseconds(telemetry.KeyDelay, r.delay))
	}
	switch what {
	case interrupted:
		level = slog.LevelInfo
	case terminated: // its publisher does not learn of it otherwise
		level = max(level, slog.LevelWarn)
	case acknowledged, retried:
	}
	if r.unsettled != nil {
		level = max(level, slog.LevelWarn)
		attrs = append(attrs, slog.Any(telemetry.KeyUnsettled, r.unsettled))
	}
	l.log.LogAttrs(ctx, level, "event handled", attrs...)
}

// problem is what the span of a delivery says; "" where nothing went wrong.
func problem(what outcome, err error) string {
	if err == nil || what == acknowledged || what == interrupted {
		return ""
	}
	return string(what) + ": " + fault.Public(err)
}

// run calls the handler, and meanwhile reports to the server that the message is in progress. A panic is an error like any other:
// one event must not take the process, and with it all others, down.
func (l *loop) run(ctx context.Context, msg jetstream.Msg, d Delivery) (err error) {
	stop := l.heartbeat(ctx, msg)
	defer stop()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			l.log.ErrorContext(ctx, "event handler panicked", telemetry.KeyError, err, telemetry.KeyStack, string(debug.Stack()))
		}
	}()
	return l.handle(ctx, d)
}

// judge decides by the class of err.
func (l *loop) judge(ctx context.Context, d Delivery, err error) (outcome, time.Duration) {
	if err == nil {
		return acknowledged, 0
	}
	if ctx.Err() != nil {
		return interrupted, 0
	}
	class := fault.ClassOf(err)
	switch fault.Describe(class).Consumer {
	case fault.Acknowledge:
		return acknowledged, 0
	case fault.Retry:
		if class == fault.Unavailable || d.Attempt < l.consumer.MaxDeliver {
			backoff := l.consumer.Backoff
			return retried, backoff[min(max(d.Attempt, 1), len(backoff))-1]
		}
		return terminated, 0
	case fault.Terminate:
		return terminated, 0
	default:
		return terminated, 0
	}
}

// settle reports the outcome to the server. It does so after the end of ctx as well: the work is done, and should not be done again.
func (l *loop) settle(ctx context.Context, msg jetstream.Msg, d Delivery, what outcome, delay time.Duration, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	switch what {
	case acknowledged:
		return msg.DoubleAck(ctx)
	case retried:
		return msg.NakWithDelay(delay)
	case interrupted:
		<-l.ended // else it would come back to us
		return msg.Nak()
	case terminated:
		// In this order, since a rejection that is reported twice does less harm than one that is never reported.
		if err := l.reject(ctx, d, cause); err != nil {
			return errors.Join(err, msg.NakWithDelay(l.consumer.Backoff[0]))
		}
		return msg.TermWithReason(reason(cause))
	default:
		return fmt.Errorf("unknown outcome %q", what)
	}
}

func (l *loop) reject(ctx context.Context, d Delivery, cause error) (err error) {
	if l.rejected == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while rejecting: %v", p)
			l.log.ErrorContext(ctx, "rejection panicked", telemetry.KeyError, err, telemetry.KeyStack, string(debug.Stack()))
		}
	}()
	l.rejected(ctx, d, cause)
	return nil
}

// reason is what the server's advisory says; it takes one line of ASCII text.
func reason(err error) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, fault.Public(err))
	return text[:min(len(text), 200)]
}

func attemptOf(msg jetstream.Msg) int {
	meta, err := msg.Metadata()
	if err != nil {
		return 1
	}
	return int(meta.NumDelivered)
}
