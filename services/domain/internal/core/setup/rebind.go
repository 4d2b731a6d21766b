package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ChangedEnvironment is a change of an environment. What is nil stays as it is.
type ChangedEnvironment struct {
	ID          int64
	Description *string
	// DriverRef and DriverConfig are those of the next driver binding. Another driver comes with its configuration.
	DriverRef    *string
	DriverConfig json.RawMessage
	// Fleet is that of the next driver binding; an object without members ends it.
	Fleet json.RawMessage
	// Version is the binding that the change was made from; Conflict if another one is in force meanwhile. 0 is any.
	Version int
	Reason  string
}

// UpdateEnvironment changes the description of an environment, and its driver, configuration or agent by a new driver binding (D57). The
// environment is onboarded with it, and then every application in it is set up again; until then nothing new is deployed there. Whatever
// started before keeps the binding that it has pinned. A change to what is in force already is a no-op.
func (u *UseCases) UpdateEnvironment(ctx context.Context, a core.Actor, n ChangedEnvironment) (core.Environment, error) {
	a = a.Proposing(n)
	var made core.Environment
	err := core.Within(ctx, u.store, a, core.ActionUpdateEnvironment, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, n.ID)
		if err != nil {
			return err
		}
		made = e.Environment
		if err := a.MayIn(core.ActionUpdateEnvironment, e.Target(0)); err != nil {
			return err
		}
		next, rebinds, err := u.nextOf(e, n)
		if err != nil || !rebinds && next.Description == e.Description {
			return err
		}
		if rebinds {
			if err := u.mayRebind(ctx, tx, a, e, next); err != nil {
				return err
			}
		}
		// Recorded while the former binding is in force: policies that ask of drivers and agents decide about it.
		change := environmentChange(core.ActionUpdateEnvironment, made)
		change.Reason = n.Reason
		if err := core.Record(ctx, tx, a, change, boundState(e), boundState(next)); err != nil {
			return err
		}
		if err := u.notify(ctx, tx, a, e.ID, core.MomentEnvironmentChanged, n.Reason); err != nil {
			return err
		}
		if made.Description = next.Description; made.Description != e.Description {
			if err := tx.DescribeEnvironment(ctx, e.ID, made.Description); err != nil {
				return err
			}
		}
		if rebinds {
			made, err = u.rebind(ctx, tx, a, e, next)
		}
		return err
	})
	u.wake()
	return made, err
}

// nextOf is an environment as it is to be, and whether that takes another binding.
func (u *UseCases) nextOf(e core.BoundEnvironment, n ChangedEnvironment) (next core.BoundEnvironment, rebinds bool, err error) {
	if e.ArchivedAt != nil {
		return e, false, fault.New(fault.Refused, "environment %q was archived at %s", e.Name, e.ArchivedAt.UTC().Format(time.RFC3339))
	}
	if err := core.CheckReason(n.Reason); err != nil {
		return e, false, err
	}
	if n.Version != 0 && n.Version != e.Binding.Version {
		return e, false, fault.New(fault.Conflict, "environment %q has driver binding %d meanwhile; the change was made from %d", e.Name,
			e.Binding.Version, n.Version)
	}
	next = e
	if n.Description != nil {
		next.Description = *n.Description
	}
	if n.DriverRef != nil {
		next.Binding.DriverRef = *n.DriverRef
	}
	if n.DriverConfig != nil {
		next.Binding.DriverConfig = n.DriverConfig
	} else if next.Binding.DriverRef != e.Binding.DriverRef {
		return e, false, fault.InvalidFields(fault.Field{
			Name: "/driverConfig", Problem: "found none; expected the configuration for driver " + next.Binding.DriverRef,
		})
	}
	if n.Fleet != nil {
		next.Binding.Fleet = fleetOf(n.Fleet)
	}
	rebinds = next.Binding.DriverRef != e.Binding.DriverRef || !sameJSON(next.Binding.DriverConfig, e.Binding.DriverConfig) ||
		(next.Binding.Fleet == nil) != (e.Binding.Fleet == nil) || next.Binding.Fleet != nil && !sameJSON(next.Binding.Fleet, e.Binding.Fleet)
	if !rebinds {
		if found := core.CheckDescription("/description", next.Description); len(found) > 0 {
			return e, false, fault.InvalidFields(found...)
		}
		return next, false, nil
	}
	next.Binding.Version++
	return next, true, u.checkEnvironment(NewEnvironment{
		Name: e.Name, Description: next.Description, Tier: e.Tier, DriverRef: next.Binding.DriverRef, DriverConfig: next.Binding.DriverConfig,
		Fleet: next.Binding.Fleet,
	})
}

// mayRebind is nil when the actor may put the next binding of an environment in force.
func (u *UseCases) mayRebind(ctx context.Context, tx Tx, a core.Actor, e, next core.BoundEnvironment) error {
	if err := u.mayBind(a, core.ActionUpdateEnvironment, next.Binding.DriverRef, next.Binding.DriverConfig, next.Binding.Fleet); err != nil {
		return err
	}
	return u.mayMove(ctx, tx, a, e, next)
}

// rebind puts the next binding of an environment in force.
func (u *UseCases) rebind(ctx context.Context, tx Tx, a core.Actor, e, next core.BoundEnvironment) (core.Environment, error) {
	var err error
	next.Binding, err = tx.AddDriverBinding(ctx, core.DriverBinding{
		EnvironmentID: e.ID, Version: next.Binding.Version, DriverRef: next.Binding.DriverRef, DriverConfig: next.Binding.DriverConfig,
		Fleet: next.Binding.Fleet,
	})
	if err != nil {
		return e.Environment, err
	}
	made, err := u.onboard(ctx, tx, a.Organization, next)
	if err != nil {
		return made, err
	}
	// What the setups found was found with the former binding. They are repeated once the environment is ready.
	next.Environment = made
	if err := tx.WantSetups(ctx, e.ID, waitsFor(made)); err != nil {
		return made, err
	}
	if err := u.announceEnvironment(ctx, tx, a.Organization, next); err != nil {
		return made, err
	}
	return made, u.eachPipelineTo(ctx, tx, a.Organization, e.ID, func(definition core.FlowDefinition) error {
		step, err := u.stepIn(definition, e.Name)
		if err != nil || step == nil {
			return err
		}
		return u.announceApplication(ctx, tx, next, definition.ApplicationID, step, nil)
	})
}

// mayMove is nil when the places that pipelines have by the next binding of an environment, and had not by the former, belong to nothing
// that the actor may not configure: another agent in place of the former moves all of them to its cluster.
func (u *UseCases) mayMove(ctx context.Context, tx Tx, a core.Actor, e, next core.BoundEnvironment) error {
	if a.May(core.ActionUpdateEnvironment) == nil {
		return nil
	}
	return u.eachPipelineTo(ctx, tx, a.Organization, e.ID, func(definition core.FlowDefinition) error {
		before, err := u.placesOf(ctx, tx, a.Organization, definition, map[string]core.BoundEnvironment{e.Name: e})
		if err != nil {
			return err
		}
		after, err := u.placesOf(ctx, tx, a.Organization, definition, map[string]core.BoundEnvironment{e.Name: next})
		if fault.Is(err, fault.Invalid) {
			return nil // the pipeline does not fit the driver, so nothing is deployed by it
		}
		if err != nil {
			return err
		}
		return u.mayName(ctx, tx, a, slices.DeleteFunc(after, func(p claimed) bool {
			// The fleet is the same: one who may change it may configure everything.
			return slices.ContainsFunc(before, func(b claimed) bool { return b.Place == p.Place })
		}))
	})
}

// eachPipelineTo calls use for the pipeline in force of each application that goes to an environment.
func (u *UseCases) eachPipelineTo(
	ctx context.Context, tx Tx, organization, environment int64, use func(core.FlowDefinition) error,
) error {
	for after := int64(0); ; {
		page, err := tx.PipelinesTo(ctx, organization, environment, after, pipelinesAtOnce)
		if err != nil {
			return err
		}
		for _, definition := range page {
			after = definition.ApplicationID
			if err := use(definition); err != nil {
				return err
			}
		}
		if len(page) < pipelinesAtOnce {
			return nil
		}
	}
}

// stepIn is what a pipeline says about an environment; nil for nothing.
func (u *UseCases) stepIn(definition core.FlowDefinition, environment string) (*core.DeployStep, error) {
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return nil, fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	for _, step := range flow.Deploys {
		if step.Environment == environment {
			return &step, nil
		}
	}
	return nil, nil
}

// misfit is why a pipeline's configuration cannot be used with the driver binding of its environment; "" if it can. It was valid when the
// pipeline was saved, and the environment may have another binding since.
func (u *UseCases) misfit(e core.BoundEnvironment, step core.DeployStep) string {
	drivers, config := u.drivers.Now(), step.Config
	if step.RunsJobs() {
		return noPlace(drivers, e, step)
	}
	err := drivers.ValidateApplicationEnvironment(e.Binding.DriverRef, config)
	if err == nil {
		err = drivers.CheckAllowed(e.Binding.DriverRef, e.Binding.DriverConfig, config)
	}
	if !fault.Is(err, fault.Invalid) {
		return "" // one that is not installed is reported where it is used
	}
	return fmt.Sprintf("the pipeline does not fit driver binding %d of the environment (%s): %s; save a pipeline that does", e.Binding.Version,
		e.Binding.DriverRef, fault.Public(err))
}

// noPlace is why the jobs of a runbook cannot run in an environment; "" if they can.
func noPlace(drivers DriverSet, e core.BoundEnvironment, step core.DeployStep) string {
	agents, err := drivers.Agents(e.Binding.DriverRef, e.Binding.DriverConfig)
	if err != nil {
		return "" // a driver that is not installed is reported where it is used
	}
	for _, namespace := range step.Namespaces {
		if err := drivers.CheckNamespace(e.Binding.DriverRef, e.Binding.DriverConfig, namespace); err != nil {
			return "namespace: " + fault.Public(err)
		}
	}
	if len(agents) > 0 {
		return ""
	}
	return fmt.Sprintf("found environment %q, which has no agent; expected one in whose cluster jobs can run", e.Name)
}

// boundState is what the journal of changes keeps of an environment and its driver binding.
func boundState(e core.BoundEnvironment) map[string]any {
	return map[string]any{
		"description": e.Description, "driver": e.Binding.DriverRef, "driver_config": e.Binding.DriverConfig, "binding": e.Binding.Version,
		"fleet": e.Binding.Fleet,
	}
}
