package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// Hint sends a message that may get lost: connected subscribers receive it, without an acknowledgement.
func (c *Conn) Hint(subject string, payload []byte) {
	if err := c.nc.Publish(subject, payload); err != nil {
		c.log.DebugContext(context.Background(), "hint not sent", telemetry.KeySubject, subject, telemetry.KeyError, err)
	}
}

// OnHint calls fn, one message at a time, for the hints on a subject (which may hold wildcards) until ctx ends. It returns
// as soon as the subscription stands; a subscription that is not allowed is Denied.
//
// Each time the connection has been lost and is back, fn is called with nil as well: hints may have been missed, and the server
// may have come back without its streams.
func (c *Conn) OnHint(ctx context.Context, subject string, fn func(payload []byte)) error {
	err := c.subscribe(ctx, subject, "", func(m *nats.Msg) { fn(append([]byte{}, m.Data...)) }) // never nil
	if err != nil {
		return err
	}
	forget := c.back.add(func() { fn(nil) })
	context.AfterFunc(ctx, forget)
	return nil
}

// subscribe calls fn, one message at a time, for what comes on a subject until ctx ends; each message goes to one of those
// that subscribe with the same group, and to all that have none.
func (c *Conn) subscribe(ctx context.Context, subject, group string, fn nats.MsgHandler) error {
	var sub *nats.Subscription
	concerns := func(s string) bool { return s == subject }
	err := c.denied.watch(ctx, apiWithin, concerns, func(ctx context.Context) (err error) {
		sub, err = c.nc.QueueSubscribe(subject, group, fn)
		if err != nil {
			return err
		}
		if err := c.nc.FlushWithContext(ctx); err != nil && c.connected() {
			return err
		}
		// The denial comes before the answer to the flush, but on another goroutine: see what the library noted.
		if last := c.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) && violates(last, subject) {
			return c.denied.report(c.user, last)
		}
		return nil
	})
	if err != nil {
		if sub != nil {
			_ = sub.Unsubscribe() // nothing was subscribed
		}
		if fault.Is(err, fault.Denied) {
			return err
		}
		return fault.Because(fmt.Errorf("subscribe to %s: %w", subject, err), fault.Unavailable,
			"subscribe to %s: nats is not connected", subject)
	}
	context.AfterFunc(ctx, func() { _ = sub.Unsubscribe() }) // fails only on a connection that is closed
	return nil
}

// listeners are called, in no order, each time the connection is back.
type listeners struct {
	mu  sync.Mutex
	fns map[*func()]struct{}
}

func (l *listeners) add(fn func()) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fns == nil {
		l.fns = map[*func()]struct{}{}
	}
	l.fns[&fn] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.fns, &fn)
	}
}

func (l *listeners) call() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for fn := range l.fns {
		(*fn)()
	}
}

func violates(err error, subject string) bool {
	m := violation.FindStringSubmatch(err.Error())
	return m != nil && m[2] == subject
}
