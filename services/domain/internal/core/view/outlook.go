package view

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// RollbackOutlooks are what policies want, or wanted, of rollouts; no key for one of which nothing is wanted.
func (u *UseCases) RollbackOutlooks(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.RollbackOutlook, error) {
	wanted, err := u.AutomaticRollbacksByRollout(ctx, organization, rollouts)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	ids := make([]int64, 0, len(wanted))
	for id := range wanted {
		ids = append(ids, id)
	}
	known, err := u.RolloutsByID(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	var applications []int64
	for _, r := range known {
		applications = append(applications, r.ApplicationID)
	}
	policies, err := u.RollbackPolicies(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	active, err := u.ActiveRollouts(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]core.RollbackOutlook, len(wanted))
	for id, one := range wanted {
		application := known[id].ApplicationID
		policy, own := policies[application]
		if !own {
			policy = core.DefaultRollbackPolicy(application)
		}
		one.Why = one.Explain(policy, active[application])
		all[id] = one
	}
	return all, nil
}
