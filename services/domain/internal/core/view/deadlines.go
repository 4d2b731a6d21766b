package view

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// DeadlineState is the state of a deadline.
type DeadlineState string

// The states.
const (
	DeadlinePending   DeadlineState = "pending"
	DeadlineRunning   DeadlineState = "running"
	DeadlineWaiting   DeadlineState = "waiting"
	DeadlineMet       DeadlineState = "met"
	DeadlinePassed    DeadlineState = "passed"
	DeadlineWithdrawn DeadlineState = "withdrawn"
)

// Deadline is one of a rollout as it stands now.
type Deadline struct {
	core.Deadline
	State DeadlineState
	// Left is how much of it is left, and DueAt when it passes; nil unless it runs.
	Left  time.Duration
	DueAt *time.Time
}

// RolloutDeadlines are those of rollouts as they stand now.
func (u *UseCases) RolloutDeadlines(ctx context.Context, organization int64, rollouts []int64) (map[int64][]Deadline, error) {
	pinned, err := u.Deadlines(ctx, organization, rollouts)
	if err != nil || len(pinned) == 0 {
		return nil, err
	}
	ids := make([]int64, 0, len(pinned))
	for id := range pinned {
		ids = append(ids, id)
	}
	known, err := u.RolloutsByID(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	rows, err := u.GateWordsByRollout(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	rules, err := u.PinnedGates(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	stops, err := u.RolloutEnvironmentsByRollout(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	all, now := make(map[int64][]Deadline, len(pinned)), u.clock.Now()
	for id, of := range pinned {
		for _, d := range of {
			one := Deadline{Deadline: d, State: stateOf(d, known[id], stops[id])}
			if one.State == DeadlineRunning {
				left, still := d.Left(rows[id], rules[id], weightsOf(stops[id], d.EnvironmentID), now)
				if one.Left = left; still {
					one.State = DeadlineWaiting
				} else {
					due := now.Add(left)
					one.DueAt = &due
				}
			}
			all[id] = append(all[id], one)
		}
	}
	return all, nil
}

// weightsOf are those at which a rollout stops in an environment.
func weightsOf(stops []core.RolloutEnvironment, environment int64) []core.Weight {
	for _, e := range stops {
		if e.EnvironmentID == environment {
			return e.Weights
		}
	}
	return nil
}

// stateOf is the state of a deadline apart from waiting: what it is about may have ended since it was looked at.
func stateOf(d core.Deadline, r core.Rollout, stops []core.RolloutEnvironment) DeadlineState {
	switch d.Outcome {
	case "":
	case core.DeadlineMet:
		return DeadlineMet
	case core.DeadlineWithdrawn:
		return DeadlineWithdrawn
	default:
		return DeadlinePassed
	}
	over := r.State.Terminal()
	for _, e := range stops {
		over = over || d.Kind == core.DeadlineOfEnvironment && e.EnvironmentID == d.EnvironmentID && e.State.Terminal()
	}
	switch {
	case over:
		return DeadlineMet
	case d.StartedAt == nil:
		return DeadlinePending
	default:
		return DeadlineRunning
	}
}
