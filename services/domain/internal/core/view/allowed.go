package view

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// Standings are those of rollouts; no key for one that the organization does not have.
func (u *UseCases) Standings(ctx context.Context, organization int64, rollouts []int64) (map[int64]core.Standing, error) {
	known, err := u.RolloutsByID(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	words, err := u.GateWordsByRollout(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	gates, err := u.OpenGates(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	environments, err := u.RolloutEnvironmentsByRollout(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	wanted, err := u.AutomaticRollbacksByRollout(ctx, organization, rollouts)
	if err != nil {
		return nil, err
	}
	moving, began, err := u.underWay(ctx, organization, environments)
	if err != nil {
		return nil, err
	}
	var ids, applications []int64
	for _, of := range environments {
		for _, e := range of {
			ids = append(ids, e.EnvironmentID)
		}
	}
	places, err := u.EnvironmentsByID(ctx, organization, core.Distinct(ids))
	if err != nil {
		return nil, err
	}
	for _, r := range known {
		applications = append(applications, r.ApplicationID)
	}
	elsewhere, err := u.ApplicationStandings(ctx, organization, core.Distinct(applications))
	if err != nil {
		return nil, err
	}
	all := make(map[int64]core.Standing, len(known))
	for id, r := range known {
		all[id] = core.Standing{
			Rollout: r, Gates: gates[id], Environments: environments[id], Known: places, UnderWay: moving[id], Began: began[id],
			Hold: core.HoldOf(words[id], gates[id]), Outlook: wanted[id], Elsewhere: elsewhere[r.ApplicationID].RefusesAnother(r),
		}
	}
	return all, nil
}

// underWay is which rollouts are deploying something, and which have ever begun to, of some environments by rollout.
func (u *UseCases) underWay(
	ctx context.Context, organization int64, environments map[int64][]core.RolloutEnvironment,
) (moving, began map[int64]bool, err error) {
	of := map[int64]int64{}
	var ids []int64
	for rollout, all := range environments {
		for _, e := range all {
			of[e.ID] = rollout
			ids = append(ids, e.ID)
		}
	}
	deployments, err := u.DeploymentsByRolloutEnvironment(ctx, organization, ids)
	moving, began = map[int64]bool{}, map[int64]bool{}
	for e, all := range deployments {
		for _, dep := range all {
			moving[of[e]] = moving[of[e]] || dep.State == core.DeploymentDeploying
			began[of[e]] = began[of[e]] || dep.Began()
		}
	}
	return moving, began, err
}

// ApplicationStandings are those of applications; no key for one that the organization does not have.
func (u *UseCases) ApplicationStandings(
	ctx context.Context, organization int64, applications []int64,
) (map[int64]core.ApplicationStanding, error) {
	known, err := u.ApplicationsByID(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	active, err := u.ActiveRollouts(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	latest, err := u.LatestFlowDefinitions(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	policies, err := u.RolloutPolicies(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	places, err := u.ApplicationEnvironmentsByApplication(ctx, organization, applications)
	if err != nil {
		return nil, err
	}
	var ids []int64
	goes := map[int64][]int64{}
	for application, of := range places {
		for _, ae := range of {
			goes[application] = append(goes[application], ae.EnvironmentID)
		}
		ids = append(ids, goes[application]...)
	}
	environments, err := u.EnvironmentsByID(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]core.ApplicationStanding, len(known))
	for id, app := range known {
		s := core.ApplicationStanding{
			Application: app, Active: active[id], OnNewer: policies[id].OnNewer, Targets: core.TargetsIn(id, goes[id], environments),
		}
		if definition, ok := latest[id]; ok {
			s.Unready = u.unready(app, definition, places[id], environments)
		} else {
			s.Unready = core.RefuseNoPipeline(app)
		}
		all[id] = s
	}
	return all, nil
}

// unready is the first stop of a pipeline that is not ready, in the order of promotion.
func (u *UseCases) unready(
	app core.Application, definition core.FlowDefinition, places []core.ApplicationEnvironment, environments map[int64]core.Environment,
) error {
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return err
	}
	byName := map[string]core.ApplicationEnvironment{}
	for _, ae := range places {
		byName[environments[ae.EnvironmentID].Name] = ae
	}
	for _, step := range flow.Deploys {
		ae := byName[step.Environment]
		if err := core.RefuseUnready(app, environments[ae.EnvironmentID], ae); err != nil {
			return err
		}
	}
	return nil
}

// EnvironmentStandings are those of environments; no key for one that the organization does not have.
func (u *UseCases) EnvironmentStandings(
	ctx context.Context, organization int64, environments []int64,
) (map[int64]core.EnvironmentStanding, error) {
	known, err := u.EnvironmentsByID(ctx, organization, environments)
	if err != nil {
		return nil, err
	}
	active, err := u.ActiveRolloutsByEnvironment(ctx, organization, environments)
	if err != nil {
		return nil, err
	}
	var archived []int64
	for id, e := range known {
		if e.ArchivedAt != nil {
			archived = append(archived, id)
		}
	}
	bindings, err := u.DriverBindingsByEnvironment(ctx, organization, archived)
	if err != nil {
		return nil, err
	}
	all := make(map[int64]core.EnvironmentStanding, len(known))
	for id, e := range known {
		s := core.EnvironmentStanding{Environment: e, Active: active[id]}
		if of := bindings[id]; len(of) > 0 {
			err := setup.Usable(ctx, u.drivers, u, organization, core.BoundEnvironment{Environment: e, Binding: of[0]})
			if err != nil && !fault.Is(err, fault.Refused) {
				return nil, err
			}
			s.Unusable = err
		}
		all[id] = s
	}
	return all, nil
}
