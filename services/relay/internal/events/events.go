// Package events is the relay's side of the cluster path: calls in, answers and heartbeats out. What a call means is
// decided in internal/core.
//
// A call is acknowledged when it is accepted, not when it is answered: a sync takes minutes, and the workflow service
// sends again what is not answered, to whichever relay then runs. So a relay that dies loses nothing, and keeps nothing.
package events

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/event"
)

// Publisher sends events.
type Publisher interface {
	Publish(ctx context.Context, e event.Event) error
}

// Accept takes one call. The error's class decides whether it comes again.
type Accept func(ctx context.Context, e event.Event) error

// source names the relay in its events; the sources of E71 begin with it.
func source(agent int64) string { return fmt.Sprintf("/agents/%d", agent) }
