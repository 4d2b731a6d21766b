// Package intake turns published artifacts into versions and version sets: it finds the sources that an artifact belongs to, names its
// version, keeps the order of each source's selection, and makes version sets (core.Compose), also those that people put together.
package intake

import "github.com/lockstep-cd/lockstep/pkg/clock"

// UseCases records published artifacts. It is safe for concurrent use.
type UseCases struct {
	store   Store
	matcher Matcher
	clock   clock.Clock
}

// Deps is what UseCases needs.
type Deps struct {
	Store   Store
	Matcher Matcher
	Clock   clock.Clock
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases { return &UseCases{store: d.Store, matcher: d.Matcher, clock: d.Clock} }
