package core

import (
	"context"
	"encoding/base64"
	"strconv"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Order is what a list goes by.
type Order string

// The orders.
const (
	OrderCreated Order = "created"
	OrderName    Order = "name"
)

// ApplicationFilter narrows and orders a list of applications; its zero value shows all, oldest first.
type ApplicationFilter struct {
	// Contains is part of the name, in any case; empty for all.
	Contains string
	// Order is OrderCreated when empty. The cursors of one order are none of the other's.
	Order Order
}

// EnvironmentFilter narrows a list of environments; its zero value does not.
type EnvironmentFilter struct {
	// Contains is part of the name, in any case; empty for all.
	Contains string
	// Tiers; empty for all.
	Tiers []Tier
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

// GatesFor are the open gates that an actor may approve, those of the oldest rollouts first. Gates of one rollout are on
// one page, which may have a few more than were asked for.
func (d *Domain) GatesFor(ctx context.Context, a Actor, p Page) (Slice[Gate], error) {
	var s Slice[Gate]
	if err := a.May(ActionApproveGate); err != nil {
		return s, nil //nolint:nilerr // for whoever may approve nothing, nothing waits
	}
	after, err := PositionOf(p.After)
	if err != nil {
		return s, err
	}
	for {
		rollouts, err := d.RolloutsAsking(ctx, a.Organization, after, askedAtOnce)
		if err != nil || len(rollouts) == 0 {
			return s, err
		}
		gates, err := d.OpenGates(ctx, a.Organization, rollouts)
		if err != nil {
			return s, err
		}
		for _, rollout := range rollouts {
			after = rollout
			for _, g := range gates[rollout] {
				if g.MayResolve(a, true) != nil {
					continue
				}
				if len(s.Nodes) >= p.First && s.Nodes[len(s.Nodes)-1].RolloutID != rollout {
					s.HasNext = true
					return s, nil
				}
				s.Nodes, s.EndCursor = append(s.Nodes, g), CursorOf(rollout)
			}
		}
		if len(rollouts) < askedAtOnce {
			return s, nil
		}
	}
}

// CursorOf is a position in wrapping: opaque to clients.
func CursorOf(position int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(position, 10)))
}

// PositionOf reads a cursor; 0 for none.
func PositionOf(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		var n int64
		if n, err = strconv.ParseInt(string(text), 10, 64); err == nil && n >= 0 {
			return n, nil
		}
	}
	return 0, fault.InvalidFields(fault.Field{Name: "/after", Problem: "found a cursor that is none of ours; expected one that this list has given"})
}
