package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// BatchHandler handles several events that came one after the other, and answers an error, or nil, for each. What it left
// alone because something before it failed, it answers ErrBehind for. It is idempotent, since every event may come again.
type BatchHandler func(context.Context, []Delivery) []error

// ErrBehind is the answer for an event that was not tried yet. It comes again, and nothing is counted against it.
var ErrBehind = errors.New("an event before this one has to be handled first")

// ConsumeInOrder is Consume for events whose order matters: it takes what is available, up to MaxAckPending at once, and the
// next only when all of that is processed. What has to be retried is retried here, after the delay of the backoff list, and
// not given back to the server, which would let others pass. It waits up to AckWait for the events of a process that was
// killed. Workers has no meaning. As every process takes events of its own, the order holds over replicas only as far as one consumes
// at a time.
func (c *Conn) ConsumeInOrder(
	ctx context.Context, consumer Consumer, h func(context.Context, []Delivery) []error, rejected func(context.Context, Delivery, error),
) error {
	consumer = consumer.withDefaults()
	if consumer.Stream == "" || consumer.Durable == "" {
		return fault.New(fault.Invalid, "consumer %q of stream %q: both need a name", consumer.Durable, consumer.Stream)
	}
	l := &loop{
		conn: c, consumer: consumer, rejected: rejected, ended: make(chan struct{}),
		log: c.log.With(telemetry.KeyStream, consumer.Stream, telemetry.KeyConsumer, consumer.Durable),
	}
	close(l.ended) // one goroutine asks for messages and gives them back
	retry := newBackoff(restartFirst, restartLimit)
	for ctx.Err() == nil {
		received, err := l.pullInOrder(ctx, h)
		if received {
			retry.reset()
		}
		if !errors.Is(err, errRenewed) && ctx.Err() == nil {
			l.log.WarnContext(ctx, "consumer interrupted", telemetry.KeyError, err)
		}
		_ = retry.wait(ctx, c.clock) // ended early, the loop sees it
	}
	return nil
}

// pullInOrder takes messages until something goes wrong.
func (l *loop) pullInOrder(ctx context.Context, h BatchHandler) (received bool, err error) {
	renewal := l.conn.keeper.renewal()
	consumer, err := l.bind(ctx)
	if err != nil {
		return false, err
	}
	if err := l.letBack(ctx, consumer); err != nil {
		return false, err
	}
	for {
		messages, err := l.fetch(ctx, consumer, renewal)
		if len(messages) > 0 {
			received = true
			l.inOrder(ctx, messages, h)
		}
		if err != nil {
			return received, err
		}
	}
}

// backMargin is how long after AckWait the server has put what was not answered for in front of what is new.
const backMargin = 500 * time.Millisecond

// letBack waits until the server redelivers what another process has taken and not acknowledged, such as one that was killed. Until
// then the server would deliver later events, which would overtake.
func (l *loop) letBack(ctx context.Context, consumer jetstream.Consumer) error {
	info := consumer.CachedInfo()
	for waited := time.Duration(0); info.NumAckPending > 0 && waited < l.consumer.AckWait+backMargin; waited += backMargin {
		if err := clock.Sleep(ctx, l.conn.clock, backMargin); err != nil {
			return err
		}
		var err error
		if info, err = consumer.Info(ctx); err != nil {
			return fmt.Errorf("read how many messages are in progress: %w", err)
		}
	}
	return nil
}

// fetch waits for a message, and takes the others that are available. What was received before an error is returned with it.
func (l *loop) fetch(ctx context.Context, consumer jetstream.Consumer, renewal <-chan struct{}) ([]jetstream.Msg, error) {
	waiting, cancel := context.WithTimeout(ctx, pullExpiry)
	defer cancel()
	first, err := consumer.Fetch(1, jetstream.FetchContext(waiting), jetstream.FetchHeartbeat(pullHeartbeat))
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	var messages []jetstream.Msg
	for open := true; open; {
		select {
		case msg, more := <-first.Messages():
			if open = more; more {
				messages = append(messages, msg)
			}
		case <-renewal:
			cancel()
			for msg := range first.Messages() {
				messages = append(messages, msg)
			}
			return messages, errRenewed
		}
	}
	if err := first.Error(); err != nil && len(messages) == 0 {
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
			return nil, nil // nothing has come
		}
		return nil, err
	}
	if len(messages) == 0 || l.consumer.MaxAckPending == 1 {
		return messages, ctx.Err()
	}
	rest, err := consumer.FetchNoWait(l.consumer.MaxAckPending - 1)
	if err != nil {
		return messages, fmt.Errorf("pull: %w", err)
	}
	for msg := range rest.Messages() {
		messages = append(messages, msg)
	}
	return messages, nil
}

// held is a message that is not done with.
type held struct {
	msg      jetstream.Msg
	delivery Delivery
	// broken is why it holds no event of the catalogue.
	broken error
	began  time.Time
}

// inOrder handles messages to their end, and writes the one line about each.
func (l *loop) inOrder(ctx context.Context, messages []jetstream.Msg, h BatchHandler) {
	messages = slices.DeleteFunc(slices.Clone(messages), func(msg jetstream.Msg) bool {
		skipped := l.skips(msg)
		if skipped {
			_ = msg.Ack() // unconfirmed, it comes again and is skipped again
		}
		return skipped
	})
	all := make([]*held, len(messages))
	for i, msg := range messages {
		one := &held{msg: msg, delivery: Delivery{Attempt: attemptOf(msg), Subject: msg.Subject()}, began: l.conn.clock.Now()}
		one.delivery.Event, one.broken = decode(ctx, msg.Subject(), msg.Headers(), msg.Data())
		all[i] = one
	}
	defer l.heartbeat(ctx, messages...)()
	for len(all) > 0 {
		errs := l.runAll(ctx, all, h)
		var done []*held
		var left []*held
		var delay time.Duration
		for i, one := range all {
			if errors.Is(errs[i], ErrBehind) && ctx.Err() == nil {
				left = append(left, one)
				continue
			}
			what, pause := l.judge(ctx, one.delivery, errs[i])
			switch what {
			case retried:
				l.note(ctx, one, what, pause, errs[i], nil)
				one.delivery.Attempt++
				delay, left = max(delay, pause), append(left, one)
			case acknowledged:
				done = append(done, one)
			case terminated, interrupted:
				l.note(ctx, one, what, 0, errs[i], l.settle(ctx, one.msg, one.delivery, what, 0, errs[i]))
			}
		}
		l.acknowledge(ctx, done)
		if all = left; delay > 0 {
			_ = clock.Sleep(ctx, l.conn.clock, delay) // ended early, what is left is interrupted
		}
	}
}

// acknowledge confirms to the server what is done. It takes them in order, so the confirmation of the last is that of all.
func (l *loop) acknowledge(ctx context.Context, done []*held) {
	for i, one := range done {
		var unsettled error
		if i < len(done)-1 {
			unsettled = one.msg.Ack()
		} else {
			unsettled = l.settle(ctx, one.msg, one.delivery, acknowledged, 0, nil)
		}
		l.note(ctx, one, acknowledged, 0, nil, unsettled)
	}
}

// runAll calls the handler with what could be read. A panic is the error of the first, and the others come again.
func (l *loop) runAll(ctx context.Context, all []*held, h BatchHandler) (errs []error) {
	errs = make([]error, len(all))
	var deliveries []Delivery
	var at []int
	for i, one := range all {
		if errs[i] = one.broken; one.broken == nil {
			deliveries, at = append(deliveries, one.delivery), append(at, i)
		}
	}
	if len(deliveries) == 0 {
		return errs
	}
	answers := make([]error, len(deliveries))
	func() {
		defer func() {
			if p := recover(); p != nil {
				for i := range answers {
					answers[i] = ErrBehind
				}
				answers[0] = fmt.Errorf("panic: %v", p)
				l.log.ErrorContext(ctx, "event handler panicked", telemetry.KeyError, answers[0], telemetry.KeyStack, string(debug.Stack()))
			}
		}()
		copy(answers, h(ctx, deliveries))
	}()
	for n, i := range at {
		errs[i] = answers[n]
	}
	return errs
}

// note writes the one line about a message, and counts it.
func (l *loop) note(ctx context.Context, one *held, what outcome, delay time.Duration, err, unsettled error) {
	kind, age := "invalid", time.Duration(0)
	if one.broken == nil {
		kind, age = kindOf(one.delivery), ageOf(one.delivery, one.began)
	}
	ctx = telemetry.ExtractTrace(ctx, one.delivery.Event)
	telemetry.RecordProcessing(ctx, one.msg.Headers().Get(sentHeader), "process "+kind, one.began, l.conn.clock.Now(), problem(what, err),
		append(telemetry.EventAttributes("process", one.delivery.Subject, one.delivery.Event.ID()),
			telemetry.ConsumerAttribute(l.consumer.Durable))...)
	l.report(ctx, one.delivery, what, result{
		kind: kind, age: age, took: l.conn.clock.Now().Sub(one.began), delay: delay, err: err, unsettled: unsettled,
	})
}

// heartbeat renews the server's patience with messages until stop is called.
func (l *loop) heartbeat(ctx context.Context, messages ...jetstream.Msg) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a handler may take a while to end
	var wg sync.WaitGroup
	wg.Go(func() {
		for clock.Sleep(ctx, l.conn.clock, l.consumer.AckWait/3) == nil {
			for _, msg := range messages {
				if err := msg.InProgress(); err != nil {
					l.log.DebugContext(ctx, "heartbeat not sent", telemetry.KeyError, err)
				}
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}
