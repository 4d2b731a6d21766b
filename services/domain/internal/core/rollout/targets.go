package rollout

import (
	"context"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// refuseTargets is Refused where a rollout would change what belongs to others in the cluster of a target (D61): the passage of a fleet
// opens places that nobody has compared when the pipeline was saved, because its agents had not the labels then.
func (u *UseCases) refuseTargets(ctx context.Context, tx Tx, c cause, p plan) error {
	for _, s := range p.stops {
		if s.fleet == nil {
			continue
		}
		places, err := setup.StepPlaces(p.drivers, s.environment, s.step, s.application.Discovered)
		if err != nil {
			return err
		}
		problem, err := u.readiness.TargetOfOthers(ctx, tx, c.Organization, setup.FleetRollout{
			Environment: s.environment, Application: p.application.ID, Places: places, Targets: slices.Concat(s.fleet.waves...),
		})
		if err != nil {
			return err
		}
		if problem != "" {
			return fault.New(fault.Refused, "%s", problem)
		}
	}
	return nil
}
