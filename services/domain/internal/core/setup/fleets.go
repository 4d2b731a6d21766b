package setup

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// What belongs to an environment of many clusters (D61) belongs to it in each target, as it does in the cluster that its configuration
// names. Targets are announced once for the environment, not with each place, so that a fleet of any size is one small event.

// clustersOf are the clusters of an environment of many, as labels are now; nil for any other.
func (u *UseCases) clustersOf(ctx context.Context, tx core.PlacesTx, e core.BoundEnvironment) (*core.FleetClusters, error) {
	if e.Binding.Fleet == nil {
		return nil, nil
	}
	agents, err := tx.LabelledAgents(ctx)
	if err != nil {
		return nil, err
	}
	return clustersAmong(u.drivers.Now(), e, agents)
}

// clustersAmong are the clusters of an environment of many among those of agents; nil for any other environment, and for one whose fleet
// cannot be read: nothing is deployed by it.
func clustersAmong(drivers DriverSet, e core.BoundEnvironment, agents []fleet.Target) (*core.FleetClusters, error) {
	spec, read := specOf(e)
	if !read {
		return nil, nil
	}
	whole, err := wholeAgents(drivers, e)
	if err != nil && !fault.Is(err, fault.NotFound) { // a driver that is no longer installed deploys nothing
		return nil, fmt.Errorf("agents of environment %d: %w", e.ID, err)
	}
	f := &core.FleetClusters{}
	for _, cluster := range whole {
		f.Agents = append(f.Agents, cluster.AgentID)
	}
	for _, a := range agents {
		if spec.Selects(a.Labels) {
			f.Targets = append(f.Targets, a.AgentID)
		}
	}
	slices.Sort(f.Targets)
	return f, nil
}

// specOf is the fleet of an environment; false without one that can be read.
func specOf(e core.BoundEnvironment) (fleet.Spec, bool) {
	if e.Binding.Fleet == nil {
		return fleet.Spec{}, false
	}
	spec, wrong := fleet.Parse(e.Binding.Fleet)
	return spec, len(wrong) == 0
}

// LabelsChanged implements access.Fleets. The agent is locked, and each environment is before its agents are read, so the last one of
// several changes announces all of them.
func (u *UseCases) LabelsChanged(
	ctx context.Context, tx core.FleetPlacesTx, organization int64, before, after map[string]string,
) error {
	all, err := tx.ClaimingEnvironments(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if spec, read := specOf(one); !read || spec.Selects(before) == spec.Selects(after) {
			continue
		}
		e, err := tx.LockEnvironment(ctx, one.ID)
		if err != nil {
			return err
		}
		if err := u.announceEnvironment(ctx, tx, organization, e); err != nil {
			return err
		}
	}
	return nil
}

// fleetsOf are the clusters of those of some environments that have a fleet.
func (u *UseCases) fleetsOf(
	ctx context.Context, tx core.PlacesTx, all []core.BoundEnvironment,
) (map[int64]*core.FleetClusters, error) {
	found := map[int64]*core.FleetClusters{}
	if !slices.ContainsFunc(all, func(e core.BoundEnvironment) bool { return e.Binding.Fleet != nil }) {
		return found, nil
	}
	agents, err := tx.LabelledAgents(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if found[e.ID], err = clustersAmong(u.drivers.Now(), e, agents); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// claimsOf are places with whose they are.
func claimsOf(e core.BoundEnvironment, application int64, places []core.Place, clusters *core.FleetClusters) []claimed {
	all := make([]claimed, len(places))
	for i, p := range places {
		all[i] = claimed{p, e.Environment, application, clusters}
	}
	return all
}

// in reports whether a place is in the cluster of an agent, as that of a target, too.
func (c claimed) in(agent int64) bool {
	if c.AgentID == agent || c.fleet == nil || !slices.Contains(c.fleet.Agents, c.AgentID) {
		return c.AgentID == agent
	}
	_, target := slices.BinarySearch(c.fleet.Targets, agent)
	return target
}

// clusters are those that a place is in.
func (c claimed) clusters() []int64 {
	if c.fleet == nil || !slices.Contains(c.fleet.Agents, c.AgentID) {
		return []int64{c.AgentID}
	}
	return append([]int64{c.AgentID}, c.fleet.Targets...)
}

// meets reports whether two places have something in common in the cluster of an agent, the last one of several: a target, if there is
// one. What is in no cluster is compared as it is.
func (c claimed) meets(o claimed, common func(ours, theirs core.Place) bool) (agent int64, found bool) {
	if c.AgentID == 0 || o.AgentID == 0 {
		return 0, common(c.Place, o.Place)
	}
	ours, theirs := c.Place, o.Place
	ours.AgentID = theirs.AgentID
	if !common(ours, theirs) { // in one cluster they are different things
		return 0, false
	}
	for _, one := range c.clusters() {
		if o.in(one) {
			agent, found = one, true
		}
	}
	return agent, found
}

// meetsAny is meets with several.
func (c claimed) meetsAny(all []claimed, common func(ours, theirs core.Place) bool) (agent int64, found bool) {
	for _, o := range all {
		if agent, found = c.meets(o, common); found {
			return agent, true
		}
	}
	return 0, false
}

// FleetRollout is what a rollout to a fleet may change.
type FleetRollout struct {
	Environment core.BoundEnvironment
	Application int64
	// Places are those that are pinned in the clusters that the environment names, and Targets the agents that it goes to.
	Places  []core.Place
	Targets []fleet.Target
}

// TargetOfOthers is why a rollout may not go to all of its targets: something in the cluster of one belongs to another application in a
// protected environment, whose passage the rollout does not need. "" if it may. In the cluster that the configuration names, it was decided
// when the pipeline was saved.
func (u *UseCases) TargetOfOthers(ctx context.Context, tx ReadinessTx, organization int64, r FleetRollout) (string, error) {
	ours := &core.FleetClusters{}
	whole, err := wholeAgents(u.drivers.Now(), r.Environment)
	if err != nil {
		return "", err
	}
	for _, cluster := range whole {
		ours.Agents = append(ours.Agents, cluster.AgentID)
	}
	names := map[int64]string{}
	for _, t := range r.Targets {
		ours.Targets, names[t.AgentID] = append(ours.Targets, t.AgentID), t.Name
	}
	slices.Sort(ours.Targets)
	places := claimsOf(r.Environment, r.Application, r.Places, ours)
	others, err := u.protectedAmong(ctx, tx, organization, r.Environment.ID, names)
	if err != nil {
		return "", err
	}
	problem := ""
	refuse := func(their claimed, whose string, common func(ours, theirs core.Place) bool) {
		for _, p := range places {
			if agent, meets := p.meets(their, common); meets && names[agent] != "" && problem == "" {
				problem = fmt.Sprintf("target %q of environment %q: %s belongs to %s in environment %q, which is protected; expected a cluster "+
					"where nothing of others is deployed to: change the labels of the agent, or let environment %q accept direct changes", names[agent],
					r.Environment.Name, p.words(), whose, their.environment.Name, their.environment.Name)
			}
		}
	}
	fleets, err := u.fleetsOf(ctx, tx, others)
	if err != nil {
		return "", err
	}
	for _, e := range others {
		whole, err := u.ownClusters(e)
		if err != nil {
			return "", err
		}
		for _, their := range claimsOf(e, 0, whole, fleets[e.ID]) {
			refuse(their, "everything", func(ours, theirs core.Place) bool { return theirs.Owns(ours) })
		}
	}
	err = u.eachClaim(ctx, tx, organization, others, func(their claimed) error {
		if their.application != r.Application && problem == "" {
			refuse(their, fmt.Sprintf("application_%d", their.application), core.Place.Overlaps)
		}
		return nil
	})
	return problem, err
}

// protectedAmong are the protected environments, but for one, that have something in the clusters of some agents.
func (u *UseCases) protectedAmong(
	ctx context.Context, tx ReadinessTx, organization, but int64, agents map[int64]string,
) ([]core.BoundEnvironment, error) {
	all, err := tx.ClaimingEnvironments(ctx)
	if err != nil {
		return nil, err
	}
	fleets, err := u.fleetsOf(ctx, tx, all)
	if err != nil {
		return nil, err
	}
	drivers, ids := u.drivers.Now(), []int64{}
	near := func(agent int64) bool { return agents[agent] != "" }
	all = slices.DeleteFunc(all, func(e core.BoundEnvironment) bool {
		whole, err := wholeAgents(drivers, e) // a driver that is not installed deploys nothing
		here := err == nil && slices.ContainsFunc(whole, func(p core.Place) bool { return near(p.AgentID) })
		if f := fleets[e.ID]; f != nil {
			here = here || slices.ContainsFunc(f.Targets, near)
		}
		return e.ID == but || !here
	})
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	asked, err := tx.EnvironmentApprovals(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	direct, err := tx.DirectChanges(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	checks, err := tx.EnvironmentChecks(ctx, organization, ids)
	return slices.DeleteFunc(all, func(e core.BoundEnvironment) bool {
		_, asks := asked[e.ID]
		_, checked := checks[e.ID]
		return !protected(e.Environment, asks, checked, direct[e.ID])
	}), err
}
