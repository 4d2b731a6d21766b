package rollout

import (
	"context"
	"slices"
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

// point is what decides which controls concern a passage.
func (p passages) point(ctx context.Context, gate string) (core.PassagePoint, error) {
	name, _, atWeight := strings.Cut(gate, "/")
	point := core.PassagePoint{ApplicationID: p.rollout.ApplicationID, Bypassed: p.hold.Bypassed}
	if b := p.entrance(name); b != nil {
		point.EnvironmentID, point.Entrance = b.EnvironmentID, !atWeight
	} else {
		point.EnvironmentID = p.rules[gate].BeforeEnvironmentID // a step guards the environment behind it
	}
	environments, err := p.tx.EnvironmentsByID(ctx, p.cause.Organization, []int64{point.EnvironmentID})
	point.Tier = environments[point.EnvironmentID].Tier
	return point, err
}

// stops are the freezes, vetoes and pins that keep a passage closed now (D49). None of them ends before the transaction does, so its end
// finds what it has stopped.
func (p passages) stops(ctx context.Context, gate string) ([]core.Stop, error) {
	point, err := p.point(ctx, gate)
	if err != nil {
		return nil, err
	}
	controls, err := p.tx.Controls(ctx, p.rollout.VersionSetID, []int64{point.EnvironmentID}, p.cause.at)
	if err != nil {
		return nil, err
	}
	if len(controls.Freezes) > 0 && p.rollout.RollbackOf != 0 {
		// What has never run in an environment is no rollback there, whatever the rollout is called.
		ran, err := p.tx.EnvironmentsThatRan(ctx, p.rollout.VersionSetID)
		if err != nil {
			return nil, err
		}
		point.Rollback = ran[point.EnvironmentID]
	}
	if len(controls.Pins) > 0 {
		requesters, err := p.tx.RolloutRequesters(ctx, p.cause.Organization, []int64{p.rollout.ID})
		if err != nil {
			return nil, err
		}
		point.Automatic = requesters[p.rollout.ID].Automatic()
	}
	stops := controls.Stopping(point, p.cause.at)
	if len(stops) == 0 {
		return nil, nil
	}
	return p.tx.HoldStops(ctx, stops)
}

// stop notes what keeps a passage closed that has everything else: in the journal, unless its last row says the same, and where the end of
// each control finds it.
func (p passages) stop(ctx context.Context, gate string, stops []core.Stop) error {
	conditions := make([]core.Condition, len(stops))
	for i, s := range stops {
		conditions[i] = s.Condition()
		if err := p.tx.AddPassageStop(ctx, p.rollout.ID, gate, s); err != nil {
			return err
		}
		if s.Until == nil {
			continue
		}
		if err := p.tx.ScheduleReview(ctx, p.rollout.ID, *s.Until); err != nil {
			return err
		}
	}
	same := slices.EqualFunc(p.hold.Stopped[gate], conditions, func(a, b core.Condition) bool {
		return a.Kind == b.Kind && a.ControlID == b.ControlID
	})
	if same {
		return nil
	}
	row := p.requestRow(core.VerbStopPassage, gate, core.DescribeStops(stops))
	row.Conditions = conditions
	return p.tx.Record(ctx, row)
}

// refusePinned is why automation does not begin a rollout: it would enter a pinned environment (D49).
func (p plan) refusePinned(ctx context.Context, tx Tx, c cause) error {
	if !c.Type.Automatic() {
		return nil
	}
	names, ids := map[int64]string{}, make([]int64, len(p.stops))
	for i, s := range p.stops {
		ids[i], names[s.environment.ID] = s.environment.ID, s.environment.Name
	}
	pins, err := tx.PinsByEnvironment(ctx, c.Organization, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if pin, pinned := pins[id]; pinned {
			return core.RefusePinned(names[id], pin)
		}
	}
	return nil
}
