package core

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// CallSender sends one attempt of a call to the relay of its agent.
type CallSender interface {
	Send(ctx context.Context, call OutgoingCall) error
}

// Dispatcher sends calls that relays are to carry out, and sends them again, with growing intervals, until they are
// answered or their deadline has passed.
type Dispatcher struct {
	Store  Store
	Sender CallSender
	Clock  clock.Clock
	Log    *slog.Logger
	// Poll is how often to look without having been woken by Woken.
	Poll  time.Duration
	Woken <-chan struct{}
}

const callBatch = 100

// Run sends until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		calls, err := d.Store.NextCalls(ctx, d.Clock.Now(), callBatch)
		if err != nil && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "look for calls to send", "error", err)
		}
		for _, call := range calls {
			if err := d.Sender.Send(ctx, call); err != nil && ctx.Err() == nil {
				// The next attempt is on record already.
				d.Log.WarnContext(ctx, "send call", "call", call.ID, "function", call.Function, "agent", call.Agent, "attempt", call.Attempt, "error", err)
			}
		}
		if len(calls) == callBatch {
			continue
		}
		t := d.Clock.NewTimer(d.Poll)
		select {
		case <-d.Woken:
		case <-t.C():
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}
