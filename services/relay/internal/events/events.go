// Package events is the relay's side of the cluster path: it receives calls, and publishes answers and heartbeats. internal/core decides
// what a call means.
//
// A call is acknowledged when it is accepted, not when it is answered: a sync takes minutes, and the workflow service repeats unanswered
// calls, to whichever relay then runs. So a relay that dies loses nothing, and keeps nothing.
package events

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

// Publisher publishes events.
type Publisher interface {
	Publish(ctx context.Context, e event.Event) error
}

// Accept accepts one call. The class of the error decides whether it is redelivered.
type Accept func(ctx context.Context, e event.Event) error

// source returns the relay's name in its events; the sources of E71 begin with it.
func source(agent int64) string { return event.AgentSource(agent) }
