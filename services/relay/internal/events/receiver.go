package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// Runner executes calls.
type Runner interface {
	Run(ctx context.Context, call core.Call) core.Answer
}

// ReceiverDeps are the dependencies of a Receiver.
type ReceiverDeps struct {
	Agent  int64
	Runner Runner
	Bus    Publisher
	Clock  clock.Clock
	Log    *slog.Logger
	// Limit is how many calls run concurrently; further ones wait.
	Limit int
	// Watch accepts the set of watches.
	Watch func(core.WatchSet)
}

// Receiver accepts calls, executes each one once at a time, and answers it.
type Receiver struct {
	deps  ReceiverDeps
	slots chan struct{}

	mu      sync.Mutex
	running map[string]int // attempt to answer, by call id
}

// NewReceiver returns a Receiver.
func NewReceiver(d ReceiverDeps) *Receiver {
	return &Receiver{deps: d, slots: make(chan struct{}, d.Limit), running: map[string]int{}}
}

// Serve consumes calls until ctx ends, and returns once everything it started has ended. Interrupted calls are not answered: they will be
// repeated.
func (r *Receiver) Serve(ctx context.Context, consume func(context.Context, Accept) error) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	return consume(ctx, func(handling context.Context, e event.Event) error {
		if e.Type() == event.TypeWatchesWanted {
			return r.watch(e)
		}
		call, err := r.read(e)
		if err != nil || !r.claim(call) {
			return err
		}
		// A full relay blocks the handler and queues nothing in memory; the bus redelivers what it returns.
		select {
		case r.slots <- struct{}{}:
		case <-handling.Done():
			r.release(call)
			return fault.New(fault.Unavailable, "all %d places are taken", cap(r.slots))
		}
		calls.Go(func() {
			defer func() { <-r.slots }()
			r.execute(telemetry.ExtractTrace(ctx, e), e, call)
		})
		return nil
	})
}

// mine refuses events for another agent.
func (r *Receiver) mine(agent int64) error {
	if agent == r.deps.Agent {
		return nil
	}
	return fault.InvalidFields(fault.Field{
		Name: "data.agent_id", Problem: fmt.Sprintf("found %d, expected %d", agent, r.deps.Agent),
	})
}

// read parses a call. A malformed one never gets better: the class ends its delivery.
func (r *Receiver) read(e event.Event) (core.Call, error) {
	data, err := event.Decode[event.FunctionCalled](e)
	if err != nil {
		return core.Call{}, fmt.Errorf("read call %s: %w", e.ID(), err)
	}
	if err := r.mine(data.AgentID); err != nil {
		return core.Call{}, err
	}
	deadline, err := time.Parse(time.RFC3339Nano, data.Deadline)
	if err != nil {
		return core.Call{}, fault.InvalidFields(fault.Field{
			Name: "data.deadline", Problem: fmt.Sprintf("found %q, expected a time stamp (RFC 3339)", data.Deadline),
		})
	}
	organization, err := event.Organization(e)
	if err != nil {
		return core.Call{}, fmt.Errorf("read call %s: %w", e.ID(), err)
	}
	call := core.Call{
		ID: data.CallID, Function: data.Function, Args: data.Arguments, Attempt: data.Attempt, Deadline: deadline,
		HeldWeights: data.HeldWeights, Owner: data.Owner, Installation: data.Installation,
	}
	if organization != 0 { // earlier control planes do not report it
		call.Organization = strconv.FormatInt(organization, 10)
	}
	return call, nil
}

// claim reports whether the call has to be executed. A running one does not: its answer serves all attempts. The engine repeats a call
// until it is answered, so this is the normal case for a long one.
func (r *Receiver) claim(call core.Call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt, runs := r.running[call.ID]
	r.running[call.ID] = max(attempt, call.Attempt)
	return !runs
}

// release removes a finished call, and returns the newest attempt that asked for it. From here on another attempt runs the call again, and
// finds its work done.
func (r *Receiver) release(call core.Call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt := r.running[call.ID]
	delete(r.running, call.ID)
	return attempt
}

// execute runs the call, answers it, and logs one line about it.
func (r *Receiver) execute(ctx context.Context, e event.Event, call core.Call) {
	start := r.deps.Clock.Now()
	ctx, endSpan := telemetry.StartSpan(ctx, call.Function, telemetry.Client,
		slog.String(telemetry.KeyCall, call.ID), slog.Int64(telemetry.KeyAgent, r.deps.Agent), slog.Int(telemetry.KeyAttempt, call.Attempt))
	answer := r.deps.Runner.Run(ctx, call)
	// Released before it is answered: a repeat that arrives in between is then executed, and not lost if the answer cannot be sent.
	answer.Attempt = r.release(call)
	outcome, level := "ok", slog.LevelInfo
	if answer.Err != nil {
		outcome, level = answer.Err.Code, slog.LevelWarn
		endSpan(answer.Err.Code + ": " + answer.Err.Message)
	} else {
		endSpan("")
	}
	telemetry.ObserveFunction(call.Function, answer.Err == nil, r.deps.Clock.Now().Sub(start))
	if ctx.Err() == nil {
		if err := r.answer(ctx, e, call, answer); err != nil {
			outcome, level = "unanswered: "+err.Error(), slog.LevelError
		}
	} else {
		outcome = "interrupted"
	}
	r.deps.Log.LogAttrs(ctx, level, "call executed",
		slog.String(telemetry.KeyCall, call.ID), slog.String(telemetry.KeyFunction, call.Function),
		slog.Int(telemetry.KeyAttempt, answer.Attempt), slog.String(telemetry.KeyOutcome, outcome),
		telemetry.Milliseconds(telemetry.KeyDuration, r.deps.Clock.Now().Sub(start)))
}

// answer sends the answer, and retries until it is accepted or the deadline passes. An answer that can never be sent (too large, malformed)
// is only logged: the engine's deadline ends the call.
func (r *Receiver) answer(ctx context.Context, e event.Event, call core.Call, a core.Answer) error {
	completed, err := r.completed(ctx, e, a)
	if err != nil {
		return err
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := r.deps.Bus.Publish(ctx, completed)
		if err == nil || !fault.Is(err, fault.Unavailable) || r.deps.Clock.Now().After(call.Deadline) {
			return err
		}
		if clock.Sleep(ctx, r.deps.Clock, pause) != nil {
			return err
		}
	}
}

// completed returns the answer as an event. Its id is new: an answer to a repeated call must not be dropped as a duplicate of the first
// one.
func (r *Receiver) completed(ctx context.Context, e event.Event, a core.Answer) (event.Event, error) {
	data := event.FunctionCompleted{AgentID: r.deps.Agent, CallID: a.CallID, Attempt: a.Attempt}
	if a.Err != nil {
		data.Error = &event.CallError{Code: a.Err.Code, Message: a.Err.Message, Retryable: a.Err.Retryable}
	} else {
		value, err := json.Marshal(a.Value)
		if err != nil {
			return event.Event{}, fmt.Errorf("encode the value of %s: %w", a.CallID, err)
		}
		data.Value = value
	}
	organization, err := event.Organization(e)
	if err != nil {
		return event.Event{}, fmt.Errorf("answer %s: %w", a.CallID, err)
	}
	now := r.deps.Clock.Now()
	completed, err := event.New(event.Header{
		ID: id.New(now), Source: source(r.deps.Agent), Time: now, Organization: organization,
		Correlation: event.Extension(e, event.ExtensionCorrelation), Causation: e.ID(),
	}, data)
	if err != nil {
		return event.Event{}, fmt.Errorf("answer %s: %w", a.CallID, err)
	}
	telemetry.InjectTrace(ctx, &completed)
	return completed, nil
}
