package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// NewEnvironment is an environment with its first driver binding.
type NewEnvironment struct {
	Name        string
	Description string
	Tier        core.Tier
	DriverRef   string
	// DriverConfig is checked against the driver's schema, and opaque otherwise (E5).
	DriverConfig json.RawMessage
	// Fleet is which agents the targets are; empty for an environment of one cluster (D61).
	Fleet json.RawMessage
}

// CreateEnvironment records an environment with its first driver binding and submits its onboarding (E53).
func (u *UseCases) CreateEnvironment(ctx context.Context, a core.Actor, n NewEnvironment) (core.Environment, error) {
	if err := u.checkEnvironment(n); err != nil {
		return core.Environment{}, err
	}
	a = a.Proposing(n)
	var made core.Environment
	err := core.Within(ctx, u.store, a, core.ActionCreateEnvironment, func(ctx context.Context, tx Tx) error {
		if err := a.MayIn(core.ActionCreateEnvironment, core.Target{Tier: n.Tier}); err != nil {
			return err
		}
		if err := u.mayBind(a, core.ActionCreateEnvironment, n.DriverRef, n.DriverConfig, n.Fleet); err != nil {
			return err
		}
		e, err := tx.AddEnvironment(ctx, core.Environment{Name: n.Name, Description: n.Description, Tier: n.Tier})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "an environment exists already that is named %q, or shown as it", n.Name)
		}
		if err != nil {
			return err
		}
		b, err := tx.AddDriverBinding(
			ctx,
			core.DriverBinding{EnvironmentID: e.ID, Version: 1, DriverRef: n.DriverRef, DriverConfig: n.DriverConfig, Fleet: fleetOf(n.Fleet)},
		)
		if err != nil {
			return err
		}
		bound := core.BoundEnvironment{Environment: e, Binding: b}
		if made, err = u.onboard(ctx, tx, a.Organization, bound); err != nil {
			return err
		}
		if err := u.announceEnvironment(ctx, tx, a.Organization, bound); err != nil {
			return err
		}
		if err := u.notify(ctx, tx, a, e.ID, core.MomentEnvironmentCreated, ""); err != nil {
			return err
		}
		return core.Record(ctx, tx, a, environmentChange(core.ActionCreateEnvironment, e), nil, map[string]any{
			"name": e.Name, "description": e.Description, "tier": e.Tier, "driver": n.DriverRef, "driver_config": n.DriverConfig,
			"fleet": fleetOf(n.Fleet),
		})
	})
	u.wake()
	return made, err
}

// mayBind is nil when the actor may bind a driver that declares what a rollout changes, or may configure without limits: with any other
// driver, the passages of the environment open all of its agents' clusters, every repository and every server (PinnedPlaces).
// A fleet reaches whichever clusters have its labels, so it takes the same.
func (u *UseCases) mayBind(a core.Actor, action core.Action, driver string, config, members json.RawMessage) error {
	if a.May(action) == nil {
		return nil
	}
	if !fleet.Empty(members) {
		return fault.New(fault.Denied, "a fleet deploys to every cluster whose agent has its labels; ask a member who may configure without limits")
	}
	_, declared, err := u.drivers.Now().Places(driver, config, nil, nil)
	if err != nil || declared {
		return err
	}
	return fault.New(
		fault.Denied, "driver %s does not declare what a rollout changes (places in its manifest), so the environment would have everything of its "+
			"agents' clusters; ask a member who may configure without limits", driver,
	)
}

func (u *UseCases) checkEnvironment(n NewEnvironment) error {
	found := append(core.CheckName("/name", n.Name), core.CheckDescription("/description", n.Description)...)
	if !slices.Contains(core.AllTiers(), n.Tier) {
		found = append(
			found, fault.Field{Name: "/tier", Problem: fmt.Sprintf("found %q; expected one of development, qa, staging, production", n.Tier)},
		)
	}
	drivers := u.drivers.Now()
	bound, err := drivers.Lookup(n.DriverRef)
	if err != nil {
		found = append(found, fault.Field{Name: "/driverRef", Problem: fault.Public(err)})
		return fault.InvalidFields(found...)
	}
	wrong, err := within("/driverConfig", drivers.ValidateEnvironment(n.DriverRef, n.DriverConfig))
	if err != nil {
		return err
	}
	found = append(found, wrong...)
	if !fleet.Empty(n.Fleet) {
		_, wrong := fleet.Parse(n.Fleet)
		for _, f := range wrong {
			found = append(found, fault.Field{Name: "/fleet" + f.Name, Problem: f.Problem})
		}
		if named, err := drivers.Agents(n.DriverRef, n.DriverConfig); err == nil && len(named) == 0 {
			found = append(found, fault.Field{
				Name: "/fleet", Problem: "found driver " + n.DriverRef + ", whose configuration names no agent; expected one that deploys through agents",
			})
		} else if !bound.Fleets {
			found = append(found, fault.Field{
				Name: "/fleet", Problem: "found driver " + n.DriverRef + ", which changes all clusters at once and so knows no waves; expected an environment for each " +
					"cluster, or another driver",
			})
		}
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// fleetOf is a fleet as it is stored; nil for none.
func fleetOf(text json.RawMessage) json.RawMessage {
	if fleet.Empty(text) {
		return nil
	}
	return text
}

// DriverConfigKind says which of a driver's two schemas a configuration is of.
type DriverConfigKind string

// The kinds.
const (
	// EnvironmentConfig is that of an environment's driver binding.
	EnvironmentConfig DriverConfigKind = "environment"
	// ApplicationEnvironmentConfig is that of a pipeline's deploy step.
	ApplicationEnvironmentConfig DriverConfigKind = "application_environment"
)

// ValidateDriverConfig says what is wrong with a configuration, by JSON pointer; nothing for one that is right. The error is
// NotFound for a driver that the installation does not carry.
func (u *UseCases) ValidateDriverConfig(ref string, kind DriverConfigKind, config json.RawMessage) ([]fault.Field, error) {
	drivers := u.drivers.Now()
	check := drivers.ValidateEnvironment
	if kind == ApplicationEnvironmentConfig {
		check = drivers.ValidateApplicationEnvironment
	}
	return within("", check(ref, config))
}

// within are the fields of an Invalid error, located below a field; any other error comes back.
func within(at string, err error) ([]fault.Field, error) {
	if err == nil {
		return nil, nil
	}
	if !fault.Is(err, fault.Invalid) {
		return nil, err
	}
	fields := slices.Clone(fault.FieldsOf(err))
	if len(fields) == 0 {
		return []fault.Field{{Name: at, Problem: fault.Public(err)}}, nil
	}
	for i := range fields {
		fields[i].Name = at + fields[i].Name
	}
	return fields, nil
}

// RetryOnboarding submits the onboarding of an environment again (E29), whatever the outcome of the attempt before: what that
// one may still say counts for nothing.
func (u *UseCases) RetryOnboarding(ctx context.Context, a core.Actor, environment int64) (core.Environment, error) {
	var made core.Environment
	err := core.Within(ctx, u.store, a, core.ActionRetryOnboarding, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionRetryOnboarding, e.Target(0)); err != nil {
			return err
		}
		if e.ArchivedAt != nil {
			return fault.New(fault.Refused, "environment %q was archived at %s", e.Name, e.ArchivedAt.UTC().Format(time.RFC3339))
		}
		if made, err = u.onboard(ctx, tx, a.Organization, e); err != nil {
			return err
		}
		return core.Record(
			ctx, tx, a, environmentChange(core.ActionRetryOnboarding, e.Environment), onboardingState(e.Environment), onboardingState(made),
		)
	})
	u.wake()
	return made, err
}

// environmentChange is a row of the journal of changes about an environment.
// notify stores what was done to an environment, for those who are notified. It is called once the environment is as it is to be.
func (u *UseCases) notify(
	ctx context.Context, tx Tx, a core.Actor, environment int64, moment core.NotificationMoment, reason string,
) error {
	now := u.clock.Now()
	return tx.AddNotification(ctx, core.Notification{
		Moment: moment, Cause: fmt.Sprintf("%s:%d:%d", moment, environment, now.UnixNano()), At: now, DueAt: now, EnvironmentID: environment,
		By: a.Principal(), Reason: reason,
	})
}

func environmentChange(action core.Action, e core.Environment) core.Change {
	return core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.ChangedEnvironment, ID: e.ID, Name: e.Name}, EnvironmentID: e.ID,
	}
}

func onboardingState(e core.Environment) map[string]any {
	return map[string]any{"readiness": e.Readiness, "reason": e.ReadinessReason, "attempt": e.OnboardingAttempt}
}

// onboard submits the next onboarding of an environment; until it has ended nothing is deployed there (E59).
func (u *UseCases) onboard(ctx context.Context, tx Tx, organization int64, e core.BoundEnvironment) (core.Environment, error) {
	if err := u.nameAgents(ctx, tx, organization, e); err != nil {
		return core.Environment{}, err
	}
	e.OnboardingAttempt++
	e.Readiness, e.ReadinessReason = core.ReadinessPending, "being onboarded"
	if err := tx.SaveEnvironment(ctx, e.Environment); err != nil {
		return core.Environment{}, err
	}
	inputs, err := json.Marshal(struct {
		Environment EnvironmentInput `json:"environment"`
	}{DescribeEnvironment(e)})
	if err != nil {
		return core.Environment{}, fmt.Errorf("encode inputs of environment %d: %w", e.ID, err)
	}
	return e.Environment, Submit(ctx, tx, u.drivers.Now(), u.clock.Now(), e.Binding.DriverRef, core.Handoff{
		WorkflowID: id.OnboardingRun(e.ID, e.OnboardingAttempt),
		Subject:    core.HandoffEnvironment, SubjectID: e.ID, Program: core.ProgramOnboarding, Inputs: inputs,
	})
}
