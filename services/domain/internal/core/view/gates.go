package view

import (
	"context"
	"math"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// askedAtOnce is how many rollouts are looked at at once for gates that the actor may answer.
const askedAtOnce = 200

// GatesFor are the open gates that an actor may approve, by when their rollouts began, then by when they were asked for.
func (u *UseCases) GatesFor(ctx context.Context, a core.Actor, p core.Page) (core.Slice[core.Gate], error) {
	w, err := p.Open("gates", core.OrderCreated)
	if err != nil {
		return core.Slice[core.Gate]{}, err
	}
	// Of the rollouts of both ends other gates may be in the window.
	r := core.Range{Above: max(w.Above.Number, 1) - 1, Below: w.Below.Number, Falling: w.Falling, Most: askedAtOnce}
	if r.Below < math.MaxInt64 {
		r.Below++
	}
	var found []core.Gate
	err = u.eachGateFor(ctx, a, r, func(g core.Gate) bool {
		if w.Holds(gatePosition(g)) {
			found = append(found, g)
		}
		return len(found) < w.Limit()
	})
	return core.Cut(w, found, gatePosition), err
}

// CountGatesFor is how many GatesFor has in all.
func (u *UseCases) CountGatesFor(ctx context.Context, a core.Actor) (count int, err error) {
	err = u.eachGateFor(ctx, a, core.Range{Below: math.MaxInt64, Most: askedAtOnce}, func(core.Gate) bool {
		count++
		return true
	})
	return count, err
}

func gatePosition(g core.Gate) core.Position {
	return core.Position{Number: g.RolloutID, Minor: g.RequestID}
}

// eachGateFor goes through the open gates of a range of rollouts that an actor may approve, until take has enough.
func (u *UseCases) eachGateFor(ctx context.Context, a core.Actor, r core.Range, take func(core.Gate) bool) error {
	if err := a.MaySomewhere(core.ActionApproveGate); err != nil {
		return nil //nolint:nilerr // nothing waits for an actor who may approve nothing
	}
	for {
		rollouts, err := u.RolloutsAsking(ctx, a.Organization, r)
		if err != nil || len(rollouts) == 0 {
			return err
		}
		gates, err := u.OpenGates(ctx, a.Organization, rollouts)
		if err != nil {
			return err
		}
		where, err := u.whereFor(ctx, a, rollouts)
		if err != nil {
			return err
		}
		for _, rollout := range rollouts {
			of := gates[rollout]
			if r.Falling {
				slices.Reverse(of)
			}
			for _, g := range of {
				if a.MayIn(core.ActionApproveGate, where[rollout].GateTargets(g)...) == nil && g.MayResolve(a, true) == nil && !take(g) {
					return nil
				}
			}
		}
		if len(rollouts) < r.Most {
			return nil
		}
		if last := rollouts[len(rollouts)-1]; r.Falling {
			r.Below = last
		} else {
			r.Above = last
		}
	}
}

// whereFor are standings of rollouts with no more than where they go; empty for an actor who may approve everywhere.
func (u *UseCases) whereFor(ctx context.Context, a core.Actor, rollouts []int64) (map[int64]core.Standing, error) {
	if a.Permissions.Has(core.MayApprove) {
		return nil, nil
	}
	known, err := u.RolloutsByID(ctx, a.Organization, rollouts)
	if err != nil {
		return nil, err
	}
	stops, err := u.RolloutEnvironmentsByRollout(ctx, a.Organization, rollouts)
	if err != nil {
		return nil, err
	}
	var ids []int64
	for _, of := range stops {
		for _, e := range of {
			ids = append(ids, e.EnvironmentID)
		}
	}
	environments, err := u.EnvironmentsByID(ctx, a.Organization, core.Distinct(ids))
	all := make(map[int64]core.Standing, len(rollouts))
	for id, r := range known {
		all[id] = core.Standing{Rollout: r, Environments: stops[id], Known: environments}
	}
	return all, err
}
