package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// CallSender sends one attempt of a call to the relay of its agent.
type CallSender interface {
	Send(ctx context.Context, call OutgoingCall) error
}

// CallStore keeps the calls that relays are to carry out.
type CallStore interface {
	// NextCalls takes calls whose next attempt is due, counts the attempt, and sets the one after by the backoff. The
	// attempt is counted before it is sent: a crash in between costs an interval, never an answer.
	NextCalls(ctx context.Context, now time.Time, limit int) ([]OutgoingCall, error)
}

// Answer is what a relay says about a call.
type Answer struct {
	// Call is the activity's id. Agent is whose subject the answer came on. Only the agent that was called may answer.
	Call  string
	Agent int64
	Value json.RawMessage
	Error *history.FunctionError
}

// OutgoingCall is one attempt to have a relay carry out a Function.
type OutgoingCall struct {
	// ID is the activity's id, the same for every attempt. Attempt counts from 1.
	ID       string
	Agent    int64
	Function string
	Args     json.RawMessage
	Attempt  int
	Deadline time.Time
	// Workflow is for logs.
	Workflow string
	// Organization is whose execution it is: the relay asks what that one may have.
	Organization int64
	// Trace is the execution's.
	Trace string
	// HeldWeights are the weights, in percent, that the relay must not let an Argo Rollout leave (CallGuard).
	HeldWeights []int
	// Owner is whose objects the relay may change (CallGuard).
	Owner string
}

// CallGuard decides whether an attempt at a call is sent.
type CallGuard interface {
	// Admit adds what the relay has to respect. The error is a *history.FunctionError if the call is refused; any other error says that
	// nothing could be found out now.
	Admit(ctx context.Context, call *OutgoingCall) error
}

// Answerer takes answers to calls.
type Answerer interface {
	Answer(ctx context.Context, a Answer) error
}
