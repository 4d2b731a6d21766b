package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Dispatcher sends calls that relays are to carry out, and sends them again, with growing intervals, until they are
// answered or their deadline has passed.
type Dispatcher struct {
	Store  CallStore
	Sender CallSender
	// Guard is asked before every attempt, and Answerer receives the refusals; nil admits all calls.
	Guard    CallGuard
	Answerer Answerer
	Clock    clock.Clock
	Log      *slog.Logger
	// Woken signals that a turn has opened a call, or that one is due (Engine.Calls).
	Woken <-chan struct{}
}

// callBatch is how many calls are taken at once. Their attempts are counted when they are taken, so a crash in the
// middle of a batch costs its calls one interval each.
const callBatch = 100

// Run sends until ctx ends. Several processes may do so side by side: NextCalls gives a due call to one of them.
func (d *Dispatcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		calls, err := d.Store.NextCalls(ctx, d.Clock.Now(), callBatch)
		if err != nil && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "claiming due calls failed", "error", err)
		}
		for _, call := range calls {
			if err := d.send(ctx, call); err != nil && ctx.Err() == nil {
				// The next attempt is on record already.
				d.Log.WarnContext(ctx, "sending call failed; will retry", "call", call.ID, "function", call.Function, "agent", call.Agent, "attempt",
					call.Attempt, "error", err)
			}
		}
		// A full batch: more may be due already.
		if len(calls) == callBatch {
			continue
		}
		select {
		case <-d.Woken:
		case <-ctx.Done():
		}
	}
	return nil
}

// send sends an attempt that the guard admits. The answer to any other is the refusal.
func (d *Dispatcher) send(ctx context.Context, call OutgoingCall) error {
	if d.Guard == nil {
		return d.Sender.Send(ctx, call)
	}
	err := d.Guard.Admit(ctx, &call)
	if refusal, refused := errors.AsType[*history.FunctionError](err); refused {
		return d.Answerer.Answer(ctx, Answer{Call: call.ID, Agent: call.Agent, Error: refusal})
	}
	if err != nil {
		return err
	}
	return d.Sender.Send(ctx, call)
}
