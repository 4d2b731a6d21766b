// Package setup holds the use cases that prepare deployments: applications with their services and artifact sources, environments with
// their driver bindings and approvals, pipelines, and archiving. It submits onboardings and setups, and records what they found.
package setup

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// UseCases changes applications, environments and pipelines.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Conflict (a name is taken), Refused
// (not in the present state), Unavailable. It is safe for concurrent use.
type UseCases struct {
	store   Store
	drivers Drivers
	flows   Flows
	sources Sources
	status  SourceStatus
	clock   clock.Clock
	wake    func()
	chains  func(ctx context.Context, tx Tx, organization, application int64) error
	commits func(ctx context.Context, tx Tx, a core.Actor, of core.Application, reason string) error
}

// Chaining has f refuse the name of an application with which chains would come back to where they began.
func (u *UseCases) Chaining(f func(ctx context.Context, tx Tx, organization, application int64) error) {
	u.chains = f
}

// Following has f called when an application gets its first source of commits, in the transaction that adds it, behind the lock of the
// application.
func (u *UseCases) Following(f func(ctx context.Context, tx Tx, a core.Actor, of core.Application, reason string) error) {
	u.commits = f
}

// follow is called after an application got sources, with their keys.
func (u *UseCases) follow(ctx context.Context, tx Tx, a core.Actor, of core.Application, reason string, keys ...string) error {
	added := 0
	for _, key := range keys {
		if core.IsOfGit(key) {
			added++
		}
	}
	if u.commits == nil || added == 0 {
		return nil
	}
	if all, err := tx.CommitSources(ctx, of.ID); err != nil || all > added {
		return err
	}
	return u.commits(ctx, tx, a, of, reason)
}

// Deps is what UseCases needs.
type Deps struct {
	Store   Store
	Drivers Drivers
	Flows   Flows
	Sources Sources
	Status  SourceStatus
	Clock   clock.Clock
	// Wake is called after a change that left something to hand over or to publish; may be nil.
	Wake func()
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	if d.Wake == nil {
		d.Wake = func() {}
	}
	return &UseCases{store: d.Store, drivers: d.Drivers, flows: d.Flows, sources: d.Sources, status: d.Status, clock: d.Clock, wake: d.Wake}
}
