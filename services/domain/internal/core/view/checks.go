package view

import (
	"context"
	"maps"
	"slices"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// RolloutChecks are all checks of rollouts with what they have come to, in the order of promotion: of one that is over, as it ended. No
// key for a rollout without checks.
func (u *UseCases) RolloutChecks(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.CheckState, error) {
	pinned, err := u.ChecksByRollout(ctx, organization, rollouts)
	if err != nil || len(pinned) == 0 {
		return nil, err
	}
	var checked, sets, stops, places, services []int64
	for id, of := range pinned {
		checked, places = append(checked, id), append(places, core.HealthPlaces(of)...)
	}
	known, err := u.RolloutsByID(ctx, organization, checked)
	if err != nil {
		return nil, err
	}
	environments, err := u.RolloutEnvironmentsByRollout(ctx, organization, checked)
	if err != nil {
		return nil, err
	}
	for id, r := range known {
		sets = append(sets, r.VersionSetID)
		for _, e := range environments[id] {
			stops = append(stops, e.ID)
		}
	}
	reports, err := u.CheckReports(ctx, organization, core.Distinct(sets))
	if err != nil {
		return nil, err
	}
	deployments, err := u.DeploymentsByRolloutEnvironment(ctx, organization, stops)
	if err != nil {
		return nil, err
	}
	for _, of := range deployments {
		for _, d := range of {
			services = append(services, d.ServiceID)
		}
	}
	names, err := u.ServicesByID(ctx, organization, core.Distinct(services))
	if err != nil {
		return nil, err
	}
	observed, err := core.ObservedIn(ctx, u, organization, core.Distinct(places))
	if err != nil {
		return nil, err
	}
	inForce, err := core.InForceOf(ctx, u, organization, byApplication(pinned, func(id int64) int64 { return known[id].ApplicationID }))
	if err != nil {
		return nil, err
	}
	runs, err := u.CheckRuns(ctx, organization, checked)
	if err != nil {
		return nil, err
	}
	all := map[int64][]core.CheckState{}
	for id, r := range known {
		at := u.clock.Now()
		if r.FinishedAt != nil {
			at = *r.FinishedAt
		}
		c := core.Checks{
			Pinned: pinned[id], Reports: reports[r.VersionSetID], Observed: observed, Services: namesOf(names), Runs: runs[id],
			Retired: core.RetiredOf(slices.Collect(maps.Values(names))), InForce: inForce[r.ApplicationID],
		}
		all[id] = c.All(checkPlaces(environments[id], deployments), at)
	}
	return all, nil
}

// byApplication are the checks of rollouts by application.
func byApplication(pinned map[int64][]core.PinnedCheck, application func(rollout int64) int64) map[int64][]core.PinnedCheck {
	all := map[int64][]core.PinnedCheck{}
	for id, of := range pinned {
		all[application(id)] = append(all[application(id)], of...)
	}
	return all
}

// checkPlaces are the environments of a rollout as far as checks depend on them.
func checkPlaces(environments []core.RolloutEnvironment, deployments map[int64][]core.Deployment) []core.CheckPlace {
	places := make([]core.CheckPlace, len(environments))
	for i, e := range environments {
		places[i] = core.CheckPlace{
			EnvironmentID: e.EnvironmentID, Deployments: deployments[e.ID], Follows: e.Follows, NeedsHealth: e.NeedsHealth,
		}
		if e.State == core.RolloutCompleted {
			places[i].Completed = e.FinishedAt
		}
	}
	return places
}

// namesOf are the names of services, by number.
func namesOf(services map[int64]core.Service) map[int64]string {
	names := make(map[int64]string, len(services))
	for id, s := range services {
		names[id] = s.Name
	}
	return names
}
