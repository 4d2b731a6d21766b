// Package handoff is the domain's side of the workflow engine: it hands over the starts and cancellations that other use cases left in the
// store, declares whose agents are, and looks into runs for people.
package handoff

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// UseCases talks to the engine. It is safe for concurrent use.
type UseCases struct {
	store     Store
	programs  Programs
	workflows Workflows
	rollouts  Rollouts
	clock     clock.Clock
}

// Rollouts is notified of starts that the engine refused.
type Rollouts interface {
	// StartRefused closes what a workflow was to be run for that the engine refused to start.
	StartRefused(ctx context.Context, tx rollout.Tx, organization int64, workflowID, reason string) error
}

// Deps is what UseCases needs.
type Deps struct {
	Store    Store
	Programs Programs
	// Workflows looks into the engine.
	Workflows Workflows
	Rollouts  Rollouts
	Clock     clock.Clock
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	return &UseCases{store: d.Store, programs: d.Programs, workflows: d.Workflows, rollouts: d.Rollouts, clock: d.Clock}
}
