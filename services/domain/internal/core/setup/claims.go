package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// What a pipeline names in an environment is what the passage of that environment opens (D46). A member whose permission to configure is
// limited could name what belongs to others, production's Application in a pipeline to staging, and deploy to it by staging's passage.

// claimed is a place with whose it is.
type claimed struct {
	core.Place

	environment core.Environment
	application int64
	// fleet is that of the environment; nil without one.
	fleet *core.FleetClusters
}

// mayClaim is nil when the places that a pipeline newly names belong to nothing that the actor may not configure. Those who may configure
// everything name what they like. What is not named, as with a driver that declares no places, is everything, so it is theirs alone, too.
func (u *UseCases) mayClaim(
	ctx context.Context, tx Tx, a core.Actor, application int64, before core.FlowDefinition, flow core.Flow,
	environments map[string]core.BoundEnvironment,
) error {
	if a.May(core.ActionCreateFlowDefinition) == nil {
		return nil
	}
	known := map[claimKey]bool{}
	if before.ID != 0 {
		places, err := u.placesOf(ctx, tx, a.Organization, before, environments)
		if err != nil {
			return err
		}
		for _, p := range places {
			known[claimKey{p.environment.ID, p.Place}] = true
		}
	}
	places, err := u.placesIn(ctx, tx, a.Organization, application, flow, environments)
	if err != nil {
		return err
	}
	return u.mayName(ctx, tx, a, slices.DeleteFunc(places, func(p claimed) bool { return known[claimKey{p.environment.ID, p.Place}] }))
}

// mayName is nil when none of the places, which are an application's, belongs to something that the actor may not configure.
func (u *UseCases) mayName(ctx context.Context, tx Tx, a core.Actor, places []claimed) error {
	if len(places) == 0 {
		return nil
	}
	if err := refuseWide(places); err != nil {
		return err
	}
	all, err := tx.ClaimingEnvironments(ctx)
	if err != nil {
		return err
	}
	fleets, err := u.fleetsOf(ctx, tx, all)
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := u.refuseCluster(a, places, e, fleets[e.ID]); err != nil {
			return err
		}
	}
	return u.eachClaim(ctx, tx, a.Organization, all, func(theirs claimed) error { return refuseClaim(a, places, theirs) })
}

// eachClaim calls use for each place that a pipeline names in one of these environments.
func (u *UseCases) eachClaim(
	ctx context.Context, tx ReadinessTx, organization int64, all []core.BoundEnvironment, use func(theirs claimed) error,
) error {
	for _, e := range all {
		for after := int64(0); ; {
			page, err := tx.PipelinesTo(ctx, organization, e.ID, after, pipelinesAtOnce)
			if err != nil {
				return err
			}
			for _, definition := range page {
				after = definition.ApplicationID
				theirs, err := u.placesOf(ctx, tx, organization, definition, map[string]core.BoundEnvironment{e.Name: e})
				if err != nil {
					return err
				}
				for _, their := range theirs {
					if err := use(their); err != nil {
						return err
					}
				}
			}
			if len(page) < pipelinesAtOnce {
				break
			}
		}
	}
	return nil
}

// refuseWide is Denied where a place is all of a cluster, of all repositories or of all servers, or cannot be compared.
func refuseWide(places []claimed) error {
	for _, p := range places {
		if p.Unclear() {
			return fault.New(
				fault.Denied, "the pipeline names for environment %q a URL that can be read in several ways (%s); spell it plainly, or ask a member who "+
					"may configure without limits", p.environment.Name, p.words(),
			)
		}
		if p.Wide() {
			return fault.New(
				fault.Denied, "the pipeline names for environment %q everything of its clusters, repositories or servers, because its driver does not "+
					"declare what a rollout changes (places in its manifest); ask a member who may configure without limits", p.environment.Name,
			)
		}
	}
	return nil
}

// refuseCluster is Denied where places are in a cluster that belongs as a whole to an environment that the actor may not configure.
func (u *UseCases) refuseCluster(a core.Actor, places []claimed, e core.BoundEnvironment, clusters *core.FleetClusters) error {
	if a.MayIn(core.ActionCreateFlowDefinition, e.Target(places[0].application)) == nil {
		return nil
	}
	whole, err := u.ownClusters(e)
	if err != nil {
		return err
	}
	for _, p := range places {
		if _, owned := p.meetsAny(claimsOf(e, 0, whole, clusters), func(ours, theirs core.Place) bool { return theirs.Owns(ours) }); owned {
			return fault.New(
				fault.Denied, "the pipeline names for environment %q what belongs to environment %q (%s, in a cluster that is its own), which you may "+
					"not configure; ask a member who may", p.environment.Name, e.Name, p.words(),
			)
		}
	}
	return nil
}

// foundOfOthers is what a setup has found that belongs to an application in another environment, or to another one in the same; "" for
// nothing. Where a setup finds things, as the objects in the manifests of a repository, nobody has named them when the pipeline was made.
// What the pipeline names was compared then.
func (u *UseCases) foundOfOthers(
	ctx context.Context, tx ReadinessTx, organization int64, ae core.ApplicationEnvironment, discovered json.RawMessage,
) (string, error) {
	e, err := boundEnvironment(ctx, tx, organization, ae.EnvironmentID)
	if err != nil {
		return "", err
	}
	step, goes, err := u.latestStep(ctx, tx, organization, ae.ApplicationID, e.Name)
	if err != nil || !goes || step.RunsJobs() {
		return "", err
	}
	found, err := u.foundPlaces(e, step.Config, discovered)
	if err != nil || len(found) == 0 {
		return "", err
	}
	all, err := tx.ClaimingEnvironments(ctx)
	if err != nil {
		return "", err
	}
	fleets, err := u.fleetsOf(ctx, tx, []core.BoundEnvironment{e})
	if err != nil {
		return "", err
	}
	problem, ours := "", claimsOf(e, ae.ApplicationID, found, fleets[e.ID])
	err = u.eachClaim(ctx, tx, organization, all, func(their claimed) error {
		if their.application == ae.ApplicationID || problem != "" {
			return nil
		}
		for _, p := range ours {
			if _, meets := p.meets(their, core.Place.Overlaps); meets && (their.environment.ID != e.ID || p.Place == their.Place) {
				problem = fmt.Sprintf("the setup found %s, which belongs to application_%d in environment %q; if both are to change it, a member who "+
					"may configure both names it in the pipeline, by its namespace", p.words(), their.application,
					their.environment.Name)
			}
		}
		return nil
	})
	return problem, err
}

// foundPlaces are the places that a setup has found and that are within none that the pipeline names.
func (u *UseCases) foundPlaces(e core.BoundEnvironment, config, discovered json.RawMessage) ([]core.Place, error) {
	drivers := u.drivers.Now()
	named, _, err := drivers.Places(e.Binding.DriverRef, e.Binding.DriverConfig, config, nil)
	if fault.Is(err, fault.NotFound) { // a driver that is no longer installed changes nothing
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("places of environment %d: %w", e.ID, err)
	}
	found, _, err := drivers.Places(e.Binding.DriverRef, e.Binding.DriverConfig, config, discovered)
	if err != nil {
		return nil, fmt.Errorf("places of environment %d: %w", e.ID, err)
	}
	return slices.DeleteFunc(slices.Clone(found), func(p core.Place) bool { return slices.ContainsFunc(named, p.Within) }), nil
}

type claimKey struct {
	environment int64
	place       core.Place
}

// refuseClaim is Denied where one of some places belongs to an application in an environment that the actor may not configure.
func refuseClaim(a core.Actor, places []claimed, their claimed) error {
	if their.application == places[0].application { // mayDefine has asked for all of its environments
		return nil
	}
	if a.MayIn(core.ActionCreateFlowDefinition, their.environment.Target(their.application)) == nil {
		return nil
	}
	for _, p := range places {
		if _, meets := p.meets(their, core.Place.Overlaps); meets {
			return fault.New(
				fault.Denied, "the pipeline names for environment %q what belongs to application_%d in environment %q (%s), which you may not "+
					"configure; ask a member who may", p.environment.Name, their.application, their.environment.Name, their.words(),
			)
		}
	}
	return nil
}

// words is a place for people.
func (c claimed) words() string {
	switch {
	case c.Repository != "":
		return c.Path + " on branch " + c.Branch + " of " + c.Repository
	case c.URL != "":
		return c.URL
	case c.Application != "":
		return "Application " + c.Application
	case c.Name != "":
		return c.Namespace + "/" + c.Name
	default:
		return "namespace " + c.Namespace
	}
}

// placesOf are the places of a pipeline that is in force.
func (u *UseCases) placesOf(
	ctx context.Context, tx ReadinessTx, organization int64, definition core.FlowDefinition, environments map[string]core.BoundEnvironment,
) ([]claimed, error) {
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return nil, fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	return u.placesIn(ctx, tx, organization, definition.ApplicationID, flow, environments)
}

// placesIn are the places of an application's pipeline, with what its setups have found: with a driver that declares none, all that a
// passage opens (PinnedPlaces). A driver that is no longer installed has none.
func (u *UseCases) placesIn(
	ctx context.Context, tx ReadinessTx, organization, application int64, flow core.Flow, environments map[string]core.BoundEnvironment,
) ([]claimed, error) {
	known, err := tx.ApplicationEnvironmentsByApplication(ctx, organization, []int64{application})
	if err != nil {
		return nil, err
	}
	discovered := map[int64]json.RawMessage{}
	for _, ae := range known[application] {
		discovered[ae.EnvironmentID] = ae.Discovered
	}
	var bound []core.BoundEnvironment
	for _, step := range flow.Deploys {
		if e, exists := environments[step.Environment]; exists {
			bound = append(bound, e)
		}
	}
	fleets, err := u.fleetsOf(ctx, tx, bound)
	if err != nil {
		return nil, err
	}
	var all []claimed
	for _, step := range flow.Deploys {
		e, exists := environments[step.Environment]
		if !exists {
			continue
		}
		places, err := StepPlaces(u.drivers.Now(), e, step, discovered[e.ID])
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, fmt.Errorf("places of application %d in environment %d: %w", application, e.ID, err)
		}
		if step.RunsJobs() {
			fleets[e.ID] = nil // jobs run in the cluster that the environment names
		}
		all = append(all, claimsOf(e, application, places, fleets[e.ID])...)
	}
	return all, nil
}
