package rollout

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// Opening is what the passage through a gate lets the rollout's run change (D46). The engine enforces it, so it is derived from the
// record and never from what the run has requested.
type Opening struct {
	// EnvironmentID is the environment that may be changed; 0 for a gate that opens none, as a step between environments.
	EnvironmentID int64
	// Weight is the weight that may be left in the environment; 0 for the environment's entrance.
	Weight int
	// PinnedWeights are the weights that need a passage of their own, rising; only at the entrance.
	PinnedWeights []int
}

// opening derives what a gate of the rollout opens. The names of environments contain no slash, so that of a weight gate is unambiguous.
func (t *tree) opening(ctx context.Context, gate string) (Opening, error) {
	name, weight, atWeight := strings.Cut(gate, "/")
	id, err := t.environmentNamed(ctx, name)
	if err != nil || id == 0 {
		return Opening{}, err
	}
	if atWeight {
		percent, err := strconv.Atoi(weight)
		if err != nil || weightGate(name, percent) != gate || percent < 1 || percent > 100 {
			return Opening{}, nil
		}
		return Opening{EnvironmentID: id, Weight: percent}, nil
	}
	o := Opening{EnvironmentID: id}
	rules, err := t.tx.GateRules(ctx, t.rollout.ID)
	for ruled, rule := range rules {
		if rule.Own {
			continue
		}
		if percent, isWeight := strings.CutPrefix(ruled, name+"/"); isWeight {
			if n, err := strconv.Atoi(percent); err == nil && n >= 1 && n <= 100 {
				o.PinnedWeights = append(o.PinnedWeights, n)
			}
		}
	}
	slices.Sort(o.PinnedWeights)
	return o, err
}

// environmentNamed is the environment of the rollout with a name; 0 for none.
func (t *tree) environmentNamed(ctx context.Context, name string) (int64, error) {
	var ids []int64
	for _, b := range t.environments {
		if t.cause.known != nil && t.cause.known.names[b.EnvironmentID] == name {
			return b.EnvironmentID, nil
		}
		ids = append(ids, b.EnvironmentID)
	}
	if t.cause.known != nil {
		return 0, nil
	}
	environments, err := t.tx.EnvironmentsByID(ctx, t.cause.Organization, ids)
	for id, e := range environments {
		if e.Name == name {
			return id, err
		}
	}
	return 0, err
}
