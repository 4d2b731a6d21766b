package flow

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Store keeps flows, and the events that have met one of their handlers. Each method is one transaction.
type Store interface {
	// RegisterFlow makes f the current version of its name, unless the current one has the same digest: then that one
	// comes back, and created is false.
	RegisterFlow(ctx context.Context, f Flow, digest [32]byte) (current Flow, created bool, err error)
	// ListFlows reads current flows by name, those after the flow of the version after (0: all), without programs, inputs and secrets.
	ListFlows(ctx context.Context, organization, after int64, limit int) ([]Flow, error)
	// DeleteFlow retires a flow; fault.NotFound.
	DeleteFlow(ctx context.Context, organization int64, name string, at time.Time) error
	// LoadFlow reads a version, also one that is no longer the current one.
	LoadFlow(ctx context.Context, id int64) (Flow, error)
	// NextFlowWork takes events that have met a handler, and sets when each comes again if nobody says FlowWorkDone. An
	// event meets the handlers of its type in the transaction that stores it.
	NextFlowWork(ctx context.Context, now time.Time, limit int) ([]Work, error)
	// FlowWorkDone forgets the work and counts what it led to. Work that is gone is not counted again.
	FlowWorkDone(ctx context.Context, w Work, o Outcome) error
}

// Work is an event that has met a handler of its type. The filter is still to be asked.
type Work struct {
	// Handler is the handler's row, Place its place in Flow.Handlers.
	Handler int64
	Place   int
	// Flow is the ID of the version.
	Flow  int64
	Event history.Event
}

// Outcome is what FlowWork led to: a run, or a refusal, or with neither nothing, because the filter left it out.
type Outcome struct {
	Started bool
	Refusal string
}
