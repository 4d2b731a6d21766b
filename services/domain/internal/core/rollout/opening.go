package rollout

import (
	"context"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
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
	// Places are what may be changed, as the rollout has pinned it; only at the entrance.
	Places []core.Place
}

// opening derives what a gate of the rollout opens. The names of environments contain no slash, so that of a weight gate is unambiguous.
func (t *tree) opening(ctx context.Context, gate string) (Opening, error) {
	name, weight, atWeight := strings.Cut(gate, "/")
	id, err := t.environmentNamed(ctx, name)
	if err != nil || id == 0 {
		return Opening{}, err
	}
	if atWeight {
		percent, _ := strconv.Atoi(weight) // of what is no number it makes 0
		if weightGate(name, percent) != gate || percent < 1 || percent > 100 {
			return Opening{}, nil
		}
		return Opening{EnvironmentID: id, Weight: percent}, nil
	}
	o := Opening{EnvironmentID: id}
	o.Places, o.PinnedWeights, err = t.tx.PinnedPlaces(ctx, t.rollout.ID, id)
	return o, err
}

// pinPlaces keeps what the passage of a stop will open, and at which weights the rollout stops there.
func (p plan) pinPlaces(ctx context.Context, tx Tx, rollout int64, s stop) error {
	places, err := setup.PinnedPlaces(p.drivers, s.environment, s.step.Config, s.application.Discovered)
	if err != nil {
		return err
	}
	var weights []int
	if p.skipsWeights(s) == "" {
		for _, g := range s.step.Gates {
			weights = append(weights, g.Weight)
		}
	}
	return tx.PinPlaces(ctx, rollout, s.environment.ID, places, weights)
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
