// Package rollout holds the use cases of rollouts: planning and making one, applying what its workflow reports, gates and their answers,
// pause, abort and retry, rollbacks by request and by policy, the queue of an application, previews, and the check of the journal.
//
// A rollout is changed as a tree under one lock: its environments, deployments and gates with it.
package rollout

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// UseCases changes rollouts.
//
// Errors have the classes of pkg/fault: Invalid with the fields at fault, NotFound, Refused (not in the present state), Unavailable.
// It is safe for concurrent use.
type UseCases struct {
	store     Store
	drivers   setup.Drivers
	flows     setup.Flows
	readiness Readiness
	clock     clock.Clock
	wake      func()
	breached  func(context.Context, Breach)
	bypassed  func(context.Context, Bypass)
	stuck     func(context.Context, Stuck)
	policies  *policy.Engine
	// url is the address of the console; empty if it is not known.
	url    string
	checks checkCounts
	// comparisons are those that rollouts have waited for.
	comparisons comparisonCounts
	// skipped are the steps that commits have had skipped.
	skipped stepCounts
	// drifts are the looks for drift.
	drifts driftCounts
	// driftServed is the organization that was looked at for drift last.
	driftServed atomic.Int64
	// reviewed is the organization that was last in turn to have a rollout reviewed.
	reviewed atomic.Int64
}

// Readiness records what workflows report about environments, and knows what belongs to them.
type Readiness interface {
	// TargetOfOthers is why a rollout may not go to all targets of a fleet; "" if it may.
	TargetOfOthers(ctx context.Context, tx setup.ReadinessTx, organization int64, r setup.FleetRollout) (string, error)
	// Onboarded records what an onboarding of an environment found.
	Onboarded(
		ctx context.Context, tx setup.ReadinessTx, organization int64, workflow string, environment int64, ready bool, reason string,
	) error
	// SetupFound records what a setup of an application in an environment found.
	SetupFound(
		ctx context.Context, tx setup.ReadinessTx, organization int64, workflow string, id int64, ready bool, reason string,
		discovered json.RawMessage,
	) error
	// WorkflowStopped closes what an onboarding or a setup was run for; false for any other workflow.
	WorkflowStopped(ctx context.Context, tx setup.ReadinessTx, organization int64, workflow, reason string) (known bool, err error)
}

// Deps is what UseCases needs.
type Deps struct {
	Store     Store
	Drivers   setup.Drivers
	Flows     setup.Flows
	Readiness Readiness
	Clock     clock.Clock
	// Policies decides by policies; may be nil for one of its own.
	Policies *policy.Engine
	// Wake is called after a change that left something to hand over or to publish; may be nil.
	Wake func()
	// Breached is called for a rollout that failed as a breach, in the transaction that records it; may be nil.
	Breached func(context.Context, Breach)
	// Bypassed is called for a rollout that was let past freezes, once that is recorded; may be nil.
	Bypassed func(context.Context, Bypass)
	// Stuck is called for an approval that a program has requested and that nobody can give, in the transaction that records the request; may
	// be nil.
	Stuck func(context.Context, Stuck)
	// URL is the address of the console; empty if it is not known.
	URL string
}

// New makes the use cases over their dependencies.
func New(d Deps) *UseCases {
	if d.Wake == nil {
		d.Wake = func() {}
	}
	if d.Breached == nil {
		d.Breached = func(context.Context, Breach) {}
	}
	if d.Bypassed == nil {
		d.Bypassed = func(context.Context, Bypass) {}
	}
	if d.Stuck == nil {
		d.Stuck = func(context.Context, Stuck) {}
	}
	if d.Policies == nil {
		d.Policies = &policy.Engine{}
	}
	return &UseCases{
		store: d.Store, drivers: d.Drivers, flows: d.Flows, readiness: d.Readiness, clock: d.Clock, wake: d.Wake,
		breached: d.Breached, bypassed: d.Bypassed, stuck: d.Stuck, policies: d.Policies, url: strings.TrimSuffix(d.URL, "/"),
	}
}

// checkOutcome is what the program of a check has reported, and how long after its run began.
type checkOutcome struct {
	kind  core.CheckKind
	phase core.CheckPhase
	after time.Duration
}

// CheckLatency is how many reports of a phase the programs of a kind have made in this process, and how long after their runs began.
type CheckLatency struct {
	Kind  core.CheckKind
	Phase core.CheckPhase
	Count uint64
	Sum   time.Duration
	// Within counts those that came within so many seconds.
	Within map[float64]uint64
}

// checkCounts are the reports of programs of checks, for the metrics.
type checkCounts struct {
	mu  sync.Mutex
	all []CheckLatency
}

// within are the bounds of latencies, in seconds: up to a day, because checks wait for people and for tests.
func within() []float64 { return []float64{1, 5, 30, 60, 300, 1800, 3600, 21600, 86400} }

// count counts what a transaction has recorded, unless it has failed.
func (c *checkCounts) count(failed error, all []checkOutcome) {
	if failed != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range all {
		c.add(o)
	}
}

// add counts one; the caller holds mu.
func (c *checkCounts) add(o checkOutcome) {
	at := slices.IndexFunc(c.all, func(l CheckLatency) bool { return l.Kind == o.kind && l.Phase == o.phase })
	if at < 0 {
		at, c.all = len(c.all), append(c.all, CheckLatency{Kind: o.kind, Phase: o.phase, Within: map[float64]uint64{}})
	}
	c.all[at].Count, c.all[at].Sum = c.all[at].Count+1, c.all[at].Sum+o.after
	for _, bound := range within() {
		n := c.all[at].Within[bound]
		if o.after.Seconds() <= bound {
			n++
		}
		c.all[at].Within[bound] = n // every bound is exported
	}
}

// CheckLatencies are the reports of programs of checks in this process.
func (u *UseCases) CheckLatencies() []CheckLatency {
	u.checks.mu.Lock()
	defer u.checks.mu.Unlock()
	all := slices.Clone(u.checks.all)
	for i := range all {
		all[i].Within = maps.Clone(all[i].Within)
	}
	return all
}

// change runs fn over a locked rollout, unless its standing refuses the action, and answers it as it is afterwards.
func (u *UseCases) change(
	ctx context.Context, a core.Actor, action core.Action, rollout int64, fn func(context.Context, *tree, core.Standing) error,
) (core.Rollout, error) {
	var changed core.Rollout
	err := core.Within(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		t, err := lockTree(ctx, tx, cause{Actor: a, at: u.clock.Now()}, rollout)
		if err != nil {
			return err
		}
		s, err := t.standing(ctx)
		if err != nil {
			return err
		}
		if err := s.MayHere(a, action); err != nil {
			return err
		}
		if err := s.Refuses(action); err != nil {
			return err
		}
		if err := fn(ctx, t, s); err != nil {
			return err
		}
		// Read again, in the same transaction: the tree does not have what is derived.
		after, err := tx.RolloutsByID(ctx, a.Organization, []int64{rollout})
		changed = after[rollout]
		return err
	})
	u.wake()
	return changed, err
}

// standing is that of a locked rollout.
func (t *tree) standing(ctx context.Context) (core.Standing, error) {
	s := core.Standing{Rollout: t.rollout, UnderWay: t.underWay(), Began: t.began()}
	ids := make([]int64, len(t.environments))
	for i, b := range t.environments {
		s.Environments, ids[i] = append(s.Environments, b.RolloutEnvironment), b.EnvironmentID
	}
	var err error
	if s.Known, err = t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids); err != nil {
		return s, err
	}
	rows, err := t.tx.GateWordsByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	if err != nil {
		return s, err
	}
	gates, err := t.tx.OpenGates(ctx, t.cause.Organization, []int64{t.rollout.ID})
	s.Gates = gates[t.rollout.ID]
	s.Hold = core.HoldOf(rows[t.rollout.ID], s.Gates)
	if err != nil {
		return s, err
	}
	wanted, err := t.tx.AutomaticRollbacksByRollout(ctx, t.cause.Organization, []int64{t.rollout.ID})
	s.Outlook = wanted[t.rollout.ID]
	return s, err
}
