package rollout

import (
	"context"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/policy"
)

// CallReported is what policies decided about a call of a Function in the engine (D51).
type CallReported struct{ core.CallRequest }

func (m CallReported) apply(ctx context.Context, _ *UseCases, tx Tx, c cause, _ core.Inbound) error {
	m.RolloutID, m.CreatedAt = id.Rollout(m.WorkflowID), c.at
	return policy.CallReported(ctx, tx, m.CallRequest)
}

// forCalls adds to the inputs of a rollout's run what policies about its calls may ask of, and which of them are in force.
func (u *UseCases) forCalls(ctx context.Context, tx Tx, c cause, p plan, in *rolloutInput) error {
	requester := c.Actor
	if c.ID != 0 {
		var err error
		if requester.Groups, err = tx.MemberGroups(ctx, c.ID); err != nil {
			return err
		}
	}
	principal := principalOf(requester)
	in.Requester = &principal
	concerning, err := tx.PoliciesConcerning(ctx, p.application.ID, 0)
	if err != nil {
		return err
	}
	for _, s := range concerning {
		enters := slices.ContainsFunc(p.stops, func(one stop) bool { return one.environment.ID == s.EnvironmentID })
		if !s.Latest || s.EnvironmentID != 0 && !enters || s.Mode == core.PolicyOff || !u.policies.AboutCalls(s.PolicySet) {
			continue
		}
		if in.CallPolicies == nil {
			in.CallPolicies = map[string]int{}
		}
		in.CallPolicies[s.Name] = s.Version
	}
	return nil
}
