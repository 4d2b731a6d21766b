package core

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Cell is an application in an environment with what a cell of the matrix shows of it. It is read whole: a page has hundreds.
type Cell struct {
	ApplicationEnvironment
	Environment Environment
	// Live is the set of the last rollout that completed there, and LiveSince when; nil before the first.
	Live      *VersionSet
	LiveSince *time.Time
	// Latest is how the newest rollout that goes there stands there, and LatestVersionSet what that brings; nil before the first.
	Latest           *RolloutEnvironment
	LatestVersionSet *VersionSet
	// Health is the worst of its services', HealthUnknown before any was seen.
	Health Health
	// Reconciliation is what is in force there beside what was deployed last; nil before anybody has looked.
	Reconciliation *Reconciliation
}

// MatrixFilter narrows the matrix to applications that have a cell which meets all of it; its zero value shows all.
type MatrixFilter struct {
	// Contains is part of the application's name, in any case; empty for all.
	Contains string
	// EnvironmentIDs and Drivers say which cells are looked at, and shown; empty for all.
	EnvironmentIDs []int64
	Drivers        []string
	// States are those of the newest rollout there; empty for all.
	States []RolloutState
	// Healths are of Cell.Health; empty for all. A cell of which nothing was seen has none.
	Healths []Health
	// Waiting is whether a gate is open there; nil for both.
	Waiting *bool
	// nothing is that no cell can meet what is asked for.
	nothing bool
}

// wantsCells reports whether anything is asked of the cells.
func (f MatrixFilter) wantsCells() bool {
	return len(f.EnvironmentIDs) > 0 || len(f.States) > 0 || len(f.Healths) > 0 || f.Waiting != nil
}

// Matrix is one page of applications, by name, and the environments whose cells are to be shown; nil for all.
func (d *Domain) Matrix(ctx context.Context, organization int64, f MatrixFilter, p Page) (s Slice[Application], environments []int64, err error) {
	f, stops, err := d.narrowed(ctx, organization, f)
	if err != nil || f.nothing {
		return s, []int64{}, err
	}
	if p.Order == "" {
		p.Order = OrderName
	}
	if !f.wantsCells() {
		s, err = d.Applications(ctx, organization, ApplicationFilter{Contains: f.Contains}, p)
		return s, nil, err
	}
	s, err = d.MatrixApplications(ctx, organization, f, stops, p)
	return s, f.EnvironmentIDs, err
}

// CountMatrix is how many rows Matrix has in all.
func (d *Domain) CountMatrix(ctx context.Context, organization int64, f MatrixFilter) (int, error) {
	f, stops, err := d.narrowed(ctx, organization, f)
	if err != nil || f.nothing {
		return 0, err
	}
	if !f.wantsCells() {
		return d.CountApplications(ctx, organization, ApplicationFilter{Contains: f.Contains})
	}
	return d.CountMatrixApplications(ctx, organization, f, stops)
}

// narrowed looks up what a filter goes by: the environments of its drivers, and the stops at which a gate is open.
func (d *Domain) narrowed(ctx context.Context, organization int64, f MatrixFilter) (narrow MatrixFilter, stops []int64, err error) {
	if len(f.Drivers) > 0 {
		bound, err := d.EnvironmentsOfDrivers(ctx, organization, f.Drivers)
		if err != nil {
			return f, nil, err
		}
		if len(f.EnvironmentIDs) > 0 {
			bound = slices.DeleteFunc(bound, func(id int64) bool { return !slices.Contains(f.EnvironmentIDs, id) })
		}
		f.EnvironmentIDs, f.nothing = bound, len(bound) == 0
	}
	if f.Waiting != nil && !f.nothing {
		stops, err = d.StopsAsking(ctx, organization)
	}
	return f, stops, err
}

// GatesOfStops are the open gates at rollout environments; no key for one that has none.
func (d *Domain) GatesOfStops(ctx context.Context, organization int64, stops []int64) (map[int64][]Gate, error) {
	known, err := d.RolloutEnvironmentsByID(ctx, organization, stops)
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
	return d.gatesAtStops(ctx, organization, slices.Compact(rollouts))
}

// gatesAtStops says of rollouts at which of their environments a gate is open: its own, one of its weights, or, for a gate
// that belongs to no environment, the next one that the rollout comes to.
func (d *Domain) gatesAtStops(ctx context.Context, organization int64, rollouts []int64) (map[int64][]Gate, error) {
	gates, err := d.OpenGates(ctx, organization, rollouts)
	if err != nil || len(gates) == 0 {
		return nil, err
	}
	asking := make([]int64, 0, len(gates))
	for id := range gates {
		asking = append(asking, id)
	}
	stops, err := d.RolloutEnvironmentsByRollout(ctx, organization, asking)
	if err != nil {
		return nil, err
	}
	var places []int64
	for _, of := range stops {
		for _, e := range of {
			places = append(places, e.EnvironmentID)
		}
	}
	environments, err := d.EnvironmentsByID(ctx, organization, places)
	if err != nil {
		return nil, err
	}
	at := map[int64][]Gate{}
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
func guarded(gate string, stops []RolloutEnvironment, environments map[int64]Environment) int64 {
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
