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

// Runner carries out calls.
type Runner interface {
	Run(ctx context.Context, call core.Call) core.Answer
}

// ReceiverDeps are what a Receiver needs.
type ReceiverDeps struct {
	Agent  int64
	Runner Runner
	Bus    Publisher
	Clock  clock.Clock
	Log    *slog.Logger
	// Limit is how many calls run at once; further ones wait for their turn.
	Limit int
	// Watch takes what is to be watched.
	Watch func(core.WatchSet)
}

// Receiver accepts calls, has each one carried out once at a time, and answers it.
type Receiver struct {
	deps  ReceiverDeps
	slots chan struct{}

	mu      sync.Mutex
	running map[string]int // attempt to answer, by call id
}

// NewReceiver makes a Receiver.
func NewReceiver(d ReceiverDeps) *Receiver {
	return &Receiver{deps: d, slots: make(chan struct{}, d.Limit), running: map[string]int{}}
}

// Serve consumes calls until ctx ends, and returns once everything it started has ended. Calls that are cut off by that
// are not answered: they will be sent again.
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
		// A full relay holds the handler up and queues nothing in memory; the bus hands out again what is given back.
		select {
		case r.slots <- struct{}{}:
		case <-handling.Done():
			r.release(call)
			return fault.New(fault.Unavailable, "all %d places are taken", cap(r.slots))
		}
		calls.Go(func() {
			defer func() { <-r.slots }()
			r.carryOut(telemetry.ExtractTrace(ctx, e), e, call)
		})
		return nil
	})
}

// mine refuses what is meant for another agent.
func (r *Receiver) mine(agent int64) error {
	if agent == r.deps.Agent {
		return nil
	}
	return fault.InvalidFields(fault.Field{
		Name: "data.agent_id", Problem: fmt.Sprintf("found %d, expected %d", agent, r.deps.Agent),
	})
}

// read takes a call apart. One that is malformed never gets better: the class ends its delivery.
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
	call := core.Call{ID: data.CallID, Function: data.Function, Args: data.Arguments, Attempt: data.Attempt, Deadline: deadline}
	if organization != 0 { // a control plane of before does not say it
		call.Organization = strconv.FormatInt(organization, 10)
	}
	return call, nil
}

// claim reports whether the call is to be carried out. One that runs already is not: its answer serves all attempts.
// The engine repeats a call until it is answered, so this is the usual case for one that takes long.
func (r *Receiver) claim(call core.Call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt, runs := r.running[call.ID]
	r.running[call.ID] = max(attempt, call.Attempt)
	return !runs
}

// release forgets the call; the result is the newest attempt that asked for it. From here on another attempt runs the
// call again, which then finds its work done.
func (r *Receiver) release(call core.Call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt := r.running[call.ID]
	delete(r.running, call.ID)
	return attempt
}

// carryOut runs the call and answers it, and writes the one line that tells of it.
func (r *Receiver) carryOut(ctx context.Context, e event.Event, call core.Call) {
	start := r.deps.Clock.Now()
	ctx, endSpan := telemetry.StartSpan(ctx, call.Function, telemetry.Client,
		slog.String(telemetry.KeyCall, call.ID), slog.Int64(telemetry.KeyAgent, r.deps.Agent), slog.Int(telemetry.KeyAttempt, call.Attempt))
	answer := r.deps.Runner.Run(ctx, call)
	// Released before it is answered: a repeat that comes in between is then carried out, rather than lost when the
	// answer cannot be sent.
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
	r.deps.Log.LogAttrs(ctx, level, "call carried out",
		slog.String(telemetry.KeyCall, call.ID), slog.String(telemetry.KeyFunction, call.Function),
		slog.Int(telemetry.KeyAttempt, answer.Attempt), slog.String(telemetry.KeyOutcome, outcome),
		telemetry.Milliseconds(telemetry.KeyDuration, r.deps.Clock.Now().Sub(start)))
}

// answer sends the answer, and again until it has been taken or nobody waits for it any more. What cannot be sent for
// good (too large, malformed) is only logged: the engine's deadline ends the call.
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

// completed is the answer as an event. Its id is new: an answer to a repeated call must not be taken for the first one.
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
