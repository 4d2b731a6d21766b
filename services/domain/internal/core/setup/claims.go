package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
}

// mayClaim is nil when the places that a pipeline newly names belong to nothing that the actor may not configure. Those who may configure
// everything name what they like.
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
	places = slices.DeleteFunc(places, func(p claimed) bool { return known[claimKey{p.environment.ID, p.Place}] })
	if len(places) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(environments)) {
		for after := int64(0); ; {
			page, err := tx.PipelinesTo(ctx, a.Organization, environments[name].ID, after, pipelinesAtOnce)
			if err != nil {
				return err
			}
			for _, definition := range page {
				after = definition.ApplicationID
				if err := u.refuseClaims(ctx, tx, a, places, definition, environments); err != nil {
					return err
				}
			}
			if len(page) < pipelinesAtOnce {
				break
			}
		}
	}
	return nil
}

type claimKey struct {
	environment int64
	place       core.Place
}

// refuseClaims is Denied where places belong to an application in an environment that the actor may not configure.
func (u *UseCases) refuseClaims(
	ctx context.Context, tx Tx, a core.Actor, places []claimed, definition core.FlowDefinition, environments map[string]core.BoundEnvironment,
) error {
	if definition.ApplicationID == places[0].application {
		return nil // mayDefine has asked for all of its environments
	}
	theirs, err := u.placesOf(ctx, tx, a.Organization, definition, environments)
	if err != nil {
		return err
	}
	for _, their := range theirs {
		if a.MayIn(core.ActionCreateFlowDefinition, their.environment.Target(their.application)) == nil {
			continue
		}
		for _, p := range places {
			if p.Overlaps(their.Place) {
				return fault.New(
					fault.Denied, "the pipeline names for environment %q what belongs to application_%d in environment %q (%s), which you may not "+
						"configure; ask a member who may", p.environment.Name, their.application, their.environment.Name, their.words(),
				)
			}
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
	ctx context.Context, tx Tx, organization int64, definition core.FlowDefinition, environments map[string]core.BoundEnvironment,
) ([]claimed, error) {
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return nil, fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	return u.placesIn(ctx, tx, organization, definition.ApplicationID, flow, environments)
}

// placesIn are the places of an application's pipeline, with what its setups have found. A driver that is not installed any more has none.
func (u *UseCases) placesIn(
	ctx context.Context, tx Tx, organization, application int64, flow core.Flow, environments map[string]core.BoundEnvironment,
) ([]claimed, error) {
	known, err := tx.ApplicationEnvironmentsByApplication(ctx, organization, []int64{application})
	if err != nil {
		return nil, err
	}
	discovered := map[int64]json.RawMessage{}
	for _, ae := range known[application] {
		discovered[ae.EnvironmentID] = ae.Discovered
	}
	var all []claimed
	for _, step := range flow.Deploys {
		e, exists := environments[step.Environment]
		if !exists { // archived
			continue
		}
		places, _, err := u.drivers.Now().Places(e.Binding.DriverRef, e.Binding.DriverConfig, step.Config, discovered[e.ID])
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, fmt.Errorf("places of application %d in environment %d: %w", application, e.ID, err)
		}
		for _, p := range places {
			all = append(all, claimed{p, e.Environment, application})
		}
	}
	return all, nil
}
