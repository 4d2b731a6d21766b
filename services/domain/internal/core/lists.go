package core

import (
	"context"
	"math"
	"slices"
)

// ApplicationFilter narrows a list of applications; its zero value does not.
type ApplicationFilter struct {
	// Contains is part of the name, in any case; empty for all.
	Contains string
	// RolledOut: only those that were rolled out, or are being rolled out for the first time; false: only those that never were;
	// nil for all.
	RolledOut *bool
}

// EnvironmentFilter narrows a list of environments; its zero value does not.
type EnvironmentFilter struct {
	// Contains is part of the name, in any case; empty for all.
	Contains string
	// Tiers; empty for all.
	Tiers []Tier
	// Readiness; empty for all.
	Readiness []Readiness
}

// JournalEntry is a row of any journal of an organization, with the rollout that it belongs to. The transition's ID is its
// position.
type JournalEntry struct {
	Transition
	RolloutID int64
}

// Horizon is how far a journal can be seen at an instant.
type Horizon struct {
	// Position is the last one that can be seen. Below it some may still be missing: positions are given out before the
	// commit.
	Position int64
	// Oldest and Next bound the transactions under way: once Oldest has come to Next, those have all ended, and nothing
	// up to Position is missing any more.
	Oldest, Next int64
}

// askedAtOnce is how many rollouts are looked at in one go for gates that somebody may answer.
const askedAtOnce = 200

// Range is a stretch of rows by their numbers, neither of its ends among them.
type Range struct {
	Above, Below int64
	// Falling begins with the greatest number.
	Falling bool
	Most    int
}

// GatesFor are the open gates that an actor may approve, by when their rollouts began, then by when they were asked for.
func (d *Domain) GatesFor(ctx context.Context, a Actor, p Page) (Slice[Gate], error) {
	w, err := p.Open("gates", OrderCreated)
	if err != nil {
		return Slice[Gate]{}, err
	}
	// Of the rollouts of both ends other gates may be in the window.
	r := Range{Above: max(w.Above.Number, 1) - 1, Below: w.Below.Number, Falling: w.Falling, Most: askedAtOnce}
	if r.Below < math.MaxInt64 {
		r.Below++
	}
	var found []Gate
	err = d.eachGateFor(ctx, a, r, func(g Gate) bool {
		if w.holds(gatePosition(g)) {
			found = append(found, g)
		}
		return len(found) < w.Limit()
	})
	return Cut(w, found, gatePosition), err
}

// CountGatesFor is how many GatesFor has in all.
func (d *Domain) CountGatesFor(ctx context.Context, a Actor) (count int, err error) {
	err = d.eachGateFor(ctx, a, Range{Below: math.MaxInt64, Most: askedAtOnce}, func(Gate) bool {
		count++
		return true
	})
	return count, err
}

func gatePosition(g Gate) Position { return Position{Number: g.RolloutID, Minor: g.RequestID} }

// eachGateFor goes through the open gates of a range of rollouts that an actor may approve, until take has enough.
func (d *Domain) eachGateFor(ctx context.Context, a Actor, r Range, take func(Gate) bool) error {
	if err := a.May(ActionApproveGate); err != nil {
		return nil //nolint:nilerr // for whoever may approve nothing, nothing waits
	}
	for {
		rollouts, err := d.RolloutsAsking(ctx, a.Organization, r)
		if err != nil || len(rollouts) == 0 {
			return err
		}
		gates, err := d.OpenGates(ctx, a.Organization, rollouts)
		if err != nil {
			return err
		}
		for _, rollout := range rollouts {
			of := gates[rollout]
			if r.Falling {
				slices.Reverse(of)
			}
			for _, g := range of {
				if g.MayResolve(a, true) == nil && !take(g) {
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
