package guard

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// Change is a report of the domain service that decides what runs may change. Applying one again, or an older one later, is a no-op.
type Change struct {
	Organization int64
	// At is when the domain service made the report.
	At time.Time
	// Workflow is the run of the rollout that Granted, Aborted, Retried and Revoked are about.
	Workflow string
	// Exactly one of these is set.
	Granted                   *Passage
	Aborted, Retried, Revoked bool
	// Cancelled is set with Revoked where the rollout was cancelled.
	Cancelled bool
	// Left are, with Cancelled, the environments that the rollout has entered and not completed.
	Left      []int64
	Territory *Territory
}

// Passage is what the domain service has granted to the run of a rollout.
type Passage struct {
	// Environment is the one that may be changed.
	Environment int64
	// Weight is the weight that may be left, in percent; 0 for the entrance of the environment.
	Weight int
	// Wave is the wave of a fleet whose targets Places are about; 0 for any other gate. It opens them within an environment that was entered.
	Wave int
	// Places are what the entrance opens. Pinned are the weights, in percent, that each need a passage of their own.
	Places []activity.Place
	Pinned []int
	// Application is the one that is rolled out; 0 in grants of earlier releases.
	Application int64
	// At is when it was granted.
	At time.Time
	// Overtaken reports, of a rollout that was cancelled, whether another one of the application has entered the environment since.
	Overtaken bool
}

// Territory is what belongs to an environment, in a report: by itself, or to one application in it.
type Territory struct {
	Environment int64
	// Application is the application whose places these are; 0 for what the environment has by itself, and for all of it together.
	Application int64
	Name        string
	// Sequence orders the reports about one environment and application.
	Sequence int64
	// Protected environments are changed by their own rollouts only. Archived ones have no rollouts: what was deployed there stays as it is
	// for as long as they are protected. Both are of the environment itself.
	Protected, Archived bool
	Places              []activity.Place
	// Fleet is that of an environment of many clusters; nil without one. It is of the environment itself.
	Fleet *Fleet
}

// Fleet are the clusters of an environment of many. What belongs to it in the cluster of one of the agents belongs to it in each target,
// too. It is stored, so the JSON names never change.
type Fleet struct {
	Agents []int64 `json:"agents"`
	// Targets are agents, rising.
	Targets []int64 `json:"targets"`
}

// has reports whether the cluster of an agent is a target.
func (f *Fleet) has(agent int64) bool {
	if f == nil || agent == 0 {
		return false
	}
	_, found := slices.BinarySearch(f.Targets, agent)
	return found
}

// Together returns one territory for each environment, with the places of all its applications. An archived environment that is not
// protected has none: what was deployed there is left to the others.
func Together(reports []Territory) []Territory {
	of := map[int64]*Territory{}
	for _, r := range reports {
		t := of[r.Environment]
		if t == nil {
			t = &Territory{Environment: r.Environment, Name: r.Name}
			of[r.Environment] = t
		}
		t.Protected = t.Protected || r.Protected
		t.Places = append(t.Places, r.Places...)
		t.Archived = t.Archived || r.Archived
		if r.Fleet != nil {
			t.Fleet = r.Fleet
		}
	}
	var all []Territory
	for _, environment := range slices.Sorted(maps.Keys(of)) {
		if t := of[environment]; t.Protected || !t.Archived {
			all = append(all, *t)
		}
	}
	return all
}

// Run is what is known of a run, and of its organization.
type Run struct {
	// Root is the run that decides: the run itself, or the one that a child descends from.
	Root string
	// Version is that of the organization's territories; 0 if none was ever reported, as by a domain service of an earlier release.
	Version int64
	// Application is the one that is rolled out; 0 for runs that belong to no rollout.
	Application int64
	// Exempt is the run of a rollout that a domain service of an earlier release has created; it ends under the former protocol.
	Exempt bool
	// Revoked is set once the rollout has ended.
	Revoked bool
	// CancelledAt is when the rollout was cancelled; zero if it was not. Of such a rollout the passages are kept for a while.
	CancelledAt time.Time
	// AbortedAt and RetriedAt are the latest requests; zero for none.
	AbortedAt, RetriedAt time.Time
	Passages             []Passage
}

// Suspended reports whether the rollout is being aborted, and was not retried since.
func (r Run) Suspended() bool { return !r.AbortedAt.IsZero() && !r.RetriedAt.After(r.AbortedAt) }

// Store reads what the domain service has reported.
type Store interface {
	// Guarded returns what is known of a run, from one snapshot. Of the targets of fleets it has those of some agents only.
	Guarded(ctx context.Context, organization int64, workflow string, agents ...int64) (Run, error)
	// Territories returns those of an organization, with their version.
	Territories(ctx context.Context, organization int64) (version int64, all []Territory, err error)
}
