package events

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Publisher publishes under a message id of the caller's choice.
type Publisher interface {
	PublishAttempt(ctx context.Context, e event.Event, msgID string) error
}

// Calls sends calls to relays. It implements agent.CallSender.
type Calls struct {
	Bus   Publisher
	Clock clock.Clock
	// Installation answers what distinguishes this installation from others in the same cluster; nil: it is not reported.
	Installation func(ctx context.Context) (string, error)
}

var _ agent.CallSender = Calls{}

// Send publishes one attempt. Each attempt has a message id of its own, so that the stream does not take the second for
// a duplicate of the first; what makes them one call is the call's id.
func (c Calls) Send(ctx context.Context, call agent.OutgoingCall) error {
	attempt := fmt.Sprintf("%s/%d", call.ID, call.Attempt)
	installation := ""
	if c.Installation != nil && call.Owner != "" {
		var err error
		if installation, err = c.Installation(ctx); err != nil {
			return err
		}
	}
	e, err := event.New(event.Header{
		ID: attempt, Source: Source, Correlation: call.Workflow, Time: c.Clock.Now(), Organization: call.Organization,
	}, event.FunctionCalled{
		AgentID: call.Agent, CallID: call.ID, Function: call.Function, Arguments: call.Args,
		Attempt: call.Attempt, Deadline: call.Deadline.UTC().Format(time.RFC3339Nano), HeldWeights: call.HeldWeights,
		Owner: call.Owner, Installation: installation,
	})
	if err != nil {
		return err
	}
	return c.Bus.PublishAttempt(telemetry.WithTraceParent(ctx, call.Trace), e, attempt)
}

// Answerer takes answers to calls.
type Answerer interface {
	Answer(ctx context.Context, a agent.Answer) error
}

// Cluster consumes what relays send.
type Cluster struct {
	Answerer Answerer
	Health   *Health
	Agents   *Agents
	// Observed takes what relays see under watches.
	Observed agent.WatchStore
	Log      *slog.Logger
}

// Handle takes one answer, observation or heartbeat. The agent named in the payload must be the one whose subject it
// came on: that is what the bus's permissions vouch for.
func (c Cluster) Handle(ctx context.Context, d bus.Delivery) error {
	expected, err := event.Subject(d.Event)
	if err != nil {
		return err
	}
	if expected != d.Subject {
		return fault.InvalidFields(fault.Field{
			Name:    "data.agent_id",
			Problem: fmt.Sprintf("the event belongs on %s but came on %s", expected, d.Subject),
		})
	}
	if err := event.CheckSource(d.Event.Type(), d.Event.Source()); err != nil {
		return err
	}
	switch d.Event.Type() {
	case event.TypeFunctionCompleted:
		return c.completed(ctx, d)
	case event.TypeAgentHeartbeat:
		beat, err := event.Decode[event.AgentHeartbeat](d.Event)
		if err != nil {
			return err
		}
		beat.Message = cleaned(beat.Message)
		if c.Health.note(beat) {
			c.Log.InfoContext(ctx, "agent reports", telemetry.KeyAgent, beat.AgentID, "cluster_reachable", beat.ClusterReachable,
				"message", beat.Message)
		}
		c.Agents.heard(beat)
		return nil
	case event.TypeArgoRolloutStatusChanged, event.TypeObjectChanged:
		return c.observed(ctx, d)
	// What is not known is acknowledged all the same, or the stream would send it again and again.
	default:
		return nil
	}
}

// messageMost is how many bytes are kept of what an agent says about its cluster.
const messageMost = 1000

// cleaned is a message of an agent in a form that can be stored and shown. Agents are not trusted: what one says must not keep the
// heartbeats of others from being stored.
func cleaned(message string) string {
	if len(message) > messageMost {
		message = strings.ToValidUTF8(message[:messageMost], "") + " …"
	}
	return text.Line(message)
}

// completed hands an answer on. It is acknowledged only once the store has it: until then the bus sends it again, and
// an answer that has been taken before changes nothing (E25).
func (c Cluster) completed(ctx context.Context, d bus.Delivery) error {
	data, err := event.Decode[event.FunctionCompleted](d.Event)
	if err != nil {
		return err
	}
	answer := agent.Answer{Call: data.CallID, Agent: data.AgentID, Value: data.Value}
	outcome := "ok"
	if data.Error != nil {
		answer.Value = nil
		answer.Error = &history.FunctionError{Code: data.Error.Code, Message: data.Error.Message, Retryable: data.Error.Retryable}
		outcome = data.Error.Code
	}
	if answer.Value == nil && answer.Error == nil {
		return fault.InvalidFields(fault.Field{Name: "data", Problem: "neither value nor error, expected one of them"})
	}
	c.Log.InfoContext(ctx, "call answered", telemetry.KeyCall, data.CallID, telemetry.KeyAgent, data.AgentID,
		telemetry.KeyAttempt, data.Attempt, telemetry.KeyOutcome, outcome)
	return c.Answerer.Answer(ctx, answer)
}

// Health remembers what each agent last reported of its cluster, so that a change is logged once. It is empty after a
// start. It is for the log only; calls wait for an agent whether it is online or not.
type Health struct {
	mu        sync.Mutex
	reachable map[int64]bool
}

// NewHealth knows of no agent yet.
func NewHealth() *Health { return &Health{reachable: map[int64]bool{}} }

// note reports whether the heartbeat says something new. Several workers handle heartbeats at once, hence the lock.
func (h *Health) note(beat event.AgentHeartbeat) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.reachable[beat.AgentID]
	h.reachable[beat.AgentID] = beat.ClusterReachable
	return !known || before != beat.ClusterReachable
}
