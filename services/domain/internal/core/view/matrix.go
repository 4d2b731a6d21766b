package view

import (
	"context"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Matrix is one page of applications, by name, and the environments whose cells are to be shown; nil for all.
func (u *UseCases) Matrix(
	ctx context.Context, organization int64, f core.MatrixFilter, p core.Page,
) (s core.Slice[core.Application], environments []int64, err error) {
	f, stops, err := u.narrowed(ctx, organization, f)
	if err != nil || f.Nothing {
		return s, []int64{}, err
	}
	if p.Order == "" {
		p.Order = core.OrderName
	}
	if !f.WantsCells() {
		s, err = u.Applications(ctx, organization, core.ApplicationFilter{Contains: f.Contains}, p)
		return s, nil, err
	}
	s, err = u.MatrixApplications(ctx, organization, f, stops, p)
	return s, f.EnvironmentIDs, err
}

// CountMatrix is how many rows Matrix has in all.
func (u *UseCases) CountMatrix(ctx context.Context, organization int64, f core.MatrixFilter) (int, error) {
	f, stops, err := u.narrowed(ctx, organization, f)
	if err != nil || f.Nothing {
		return 0, err
	}
	if !f.WantsCells() {
		return u.CountApplications(ctx, organization, core.ApplicationFilter{Contains: f.Contains})
	}
	return u.CountMatrixApplications(ctx, organization, f, stops)
}

// narrowed looks up what a filter goes by: the environments of its drivers, and the stops at which a gate is open.
func (u *UseCases) narrowed(
	ctx context.Context, organization int64, f core.MatrixFilter,
) (narrow core.MatrixFilter, stops []int64, err error) {
	if len(f.Drivers) > 0 {
		bound, err := u.EnvironmentsOfDrivers(ctx, organization, f.Drivers)
		if err != nil {
			return f, nil, err
		}
		if len(f.EnvironmentIDs) > 0 {
			bound = slices.DeleteFunc(bound, func(id int64) bool { return !slices.Contains(f.EnvironmentIDs, id) })
		}
		f.EnvironmentIDs, f.Nothing = bound, len(bound) == 0
	}
	if f.Waiting != nil && !f.Nothing {
		stops, err = u.StopsAsking(ctx, organization)
	}
	return f, stops, err
}

// GatesOfStops are the open gates at rollout environments; no key for one that has none.
func (u *UseCases) GatesOfStops(ctx context.Context, organization int64, stops []int64) (map[int64][]core.Gate, error) {
	known, err := u.RolloutEnvironmentsByID(ctx, organization, stops)
	if err != nil {
		return nil, err
	}
	var rollouts []int64
	for _, e := range known {
		if !e.State.Terminal() {
			rollouts = append(rollouts, e.RolloutID)
		}
	}
	slices.Sort(rollouts)
	return u.gatesAtStops(ctx, organization, slices.Compact(rollouts))
}

// gatesAtStops says of rollouts at which of their environments a gate is open: its own, one of its weights, or, for a gate
// that belongs to no environment, the next one that the rollout comes to.
func (u *UseCases) gatesAtStops(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.Gate, error) {
	gates, err := u.OpenGates(ctx, organization, rollouts)
	if err != nil || len(gates) == 0 {
		return nil, err
	}
	asking := make([]int64, 0, len(gates))
	for id := range gates {
		asking = append(asking, id)
	}
	stops, err := u.RolloutEnvironmentsByRollout(ctx, organization, asking)
	if err != nil {
		return nil, err
	}
	var places []int64
	for _, of := range stops {
		for _, e := range of {
			places = append(places, e.EnvironmentID)
		}
	}
	environments, err := u.EnvironmentsByID(ctx, organization, places)
	if err != nil {
		return nil, err
	}
	at := map[int64][]core.Gate{}
	for rollout, open := range gates {
		for _, g := range open {
			if stop := guarded(g.GateID, stops[rollout], environments); stop != 0 {
				at[stop] = append(at[stop], g)
			}
		}
	}
	return at, nil
}

// guarded is the stop that a gate is before; 0 when there is none left.
func guarded(gate string, stops []core.RolloutEnvironment, environments map[int64]core.Environment) int64 {
	name, _, _ := strings.Cut(gate, "/")
	next := int64(0)
	for _, e := range stops {
		if environments[e.EnvironmentID].Name == name {
			return e.ID
		}
		if next == 0 && !e.State.Terminal() {
			next = e.ID
		}
	}
	return next
}
