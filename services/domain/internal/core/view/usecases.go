// Package view answers questions and changes nothing: lists and objects as they are stored, the matrix, why a rollout waits, what an actor
// may do with what is shown, delivery metrics, and the stream of the journal.
package view

import (
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// UseCases reads, through the embedded Reads and with what is worked out from them. It is safe for concurrent use.
type UseCases struct {
	Reads
	drivers setup.Drivers
	flows   setup.Flows
	clock   clock.Clock

	horizons horizons
}

// Deps is what UseCases needs.
type Deps struct {
	Reads   Reads
	Drivers setup.Drivers
	Flows   setup.Flows
	Clock   clock.Clock
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	return &UseCases{Reads: d.Reads, drivers: d.Drivers, flows: d.Flows, clock: d.Clock}
}

// Now is the time that reads go by.
func (u *UseCases) Now() time.Time { return u.clock.Now() }
