package setup

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// nameAgents keeps which agents an environment deploys through. They are agents of its own organization that are good: those
// of another one do not exist here.
func (u *UseCases) nameAgents(ctx context.Context, tx Tx, organization int64, e core.BoundEnvironment) error {
	named, err := u.drivers.Now().Agents(e.Binding.DriverRef, e.Binding.DriverConfig)
	if err != nil || len(named) == 0 {
		return err
	}
	numbers := make([]int64, len(named))
	for i, n := range named {
		numbers[i] = n.Number
	}
	known, err := tx.AgentsByID(ctx, organization, numbers)
	if err != nil {
		return err
	}
	var wrong []fault.Field
	for _, n := range named {
		switch a, ok := known[n.Number]; {
		case !ok:
			wrong = append(
				wrong, fault.Field{Name: "/driverConfig" + n.At, Problem: fmt.Sprintf("found %d; agent %d does not exist", n.Number, n.Number)},
			)
		case a.RevokedAt != nil:
			wrong = append(wrong, fault.Field{Name: "/driverConfig" + n.At, Problem: fmt.Sprintf("found %d; %s", n.Number, fault.Public(a.Open()))})
		}
	}
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return tx.NameAgents(ctx, e.ID, numbers)
}

// AgentReads finds the agents that an environment names.
type AgentReads interface {
	// AgentsByID finds revoked ones as well.
	AgentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Agent, error)
}

// Usable is what an environment that was archived has against being used again: an agent that was revoked meanwhile. Nothing
// was asked of the request that could be mended, so it is no finding in a field but a refusal.
func Usable(ctx context.Context, drivers Drivers, reads AgentReads, organization int64, e core.BoundEnvironment) error {
	named, err := drivers.Now().Agents(e.Binding.DriverRef, e.Binding.DriverConfig)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Refused, "environment %q cannot be restored: its driver %s is no longer installed", e.Name, e.Binding.DriverRef)
	}
	if err != nil {
		return err
	}
	for _, n := range named {
		known, err := reads.AgentsByID(ctx, organization, []int64{n.Number})
		if err != nil {
			return err
		}
		if agent := known[n.Number]; agent.RevokedAt != nil {
			return fault.New(fault.Refused, "environment %q cannot be restored: %s", e.Name, fault.Public(agent.Open()))
		}
	}
	return nil
}
