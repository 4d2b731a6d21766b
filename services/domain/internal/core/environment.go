package core

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// tiers are all tiers, as the API spells them.
func tiers() []Tier { return []Tier{TierDevelopment, TierQA, TierStaging, TierProduction} }

// CreateEnvironment records an environment with its first driver binding and submits its onboarding (E53).
func (d *Domain) CreateEnvironment(ctx context.Context, a Actor, n NewEnvironment) (Environment, error) {
	if err := d.checkEnvironment(n); err != nil {
		return Environment{}, err
	}
	var made Environment
	err := d.by(ctx, a, ActionCreateEnvironment, func(ctx context.Context, tx Tx) error {
		e, err := tx.AddEnvironment(ctx, Environment{Name: n.Name, Description: n.Description, Tier: n.Tier})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "an environment named %q exists already", n.Name)
		}
		if err != nil {
			return err
		}
		b, err := tx.AddDriverBinding(ctx, DriverBinding{EnvironmentID: e.ID, Version: 1, DriverRef: n.DriverRef, DriverConfig: n.DriverConfig})
		if err != nil {
			return err
		}
		made, err = d.onboard(ctx, tx, a.Organization, BoundEnvironment{e, b})
		return err
	})
	d.wake()
	return made, err
}

func (d *Domain) checkEnvironment(n NewEnvironment) error {
	found := append(checkName("/name", n.Name), checkDescription("/description", n.Description)...)
	if !slices.Contains(tiers(), n.Tier) {
		found = append(found, fault.Field{Name: "/tier", Problem: fmt.Sprintf("found %q; expected one of development, qa, staging, production", n.Tier)})
	}
	drivers := d.drivers.Now()
	if _, err := drivers.Lookup(n.DriverRef); err != nil {
		found = append(found, fault.Field{Name: "/driverRef", Problem: fault.Public(err)})
		return fault.InvalidFields(found...)
	}
	wrong, err := within("/driverConfig", drivers.ValidateEnvironment(n.DriverRef, n.DriverConfig))
	if err != nil {
		return err
	}
	if found = append(found, wrong...); len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
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
func (d *Domain) ValidateDriverConfig(ref string, kind DriverConfigKind, config json.RawMessage) ([]fault.Field, error) {
	drivers := d.drivers.Now()
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

// RetryOnboarding submits the onboarding of an environment again (E29), whatever became of the attempt before: what that
// one may still say counts for nothing.
func (d *Domain) RetryOnboarding(ctx context.Context, a Actor, environment int64) (Environment, error) {
	var made Environment
	err := d.by(ctx, a, ActionRetryOnboarding, func(ctx context.Context, tx Tx) error {
		e, err := tx.LockEnvironment(ctx, environment)
		if err != nil {
			return err
		}
		if e.ArchivedAt != nil {
			return fault.New(fault.Refused, "environment %q was archived at %s", e.Name, e.ArchivedAt.UTC().Format(time.RFC3339))
		}
		made, err = d.onboard(ctx, tx, a.Organization, e)
		return err
	})
	d.wake()
	return made, err
}

// onboard submits the next onboarding of an environment; until it has ended nothing is deployed there (E59).
func (d *Domain) onboard(ctx context.Context, tx Tx, organization int64, e BoundEnvironment) (Environment, error) {
	if err := d.nameAgents(ctx, tx, organization, e); err != nil {
		return Environment{}, err
	}
	e.OnboardingAttempt++
	e.Readiness, e.ReadinessReason = ReadinessPending, "being onboarded"
	if err := tx.SaveEnvironment(ctx, e.Environment); err != nil {
		return Environment{}, err
	}
	inputs, err := json.Marshal(struct {
		Environment environmentInput `json:"environment"`
	}{describeEnvironment(e)})
	if err != nil {
		return Environment{}, fmt.Errorf("encode inputs of environment %d: %w", e.ID, err)
	}
	return e.Environment, d.submit(ctx, tx, d.drivers.Now(), e.Binding.DriverRef, Handoff{
		WorkflowID: fmt.Sprintf("environment-%d-onboarding-%d", e.ID, e.OnboardingAttempt),
		Subject:    HandoffEnvironment, SubjectID: e.ID, Program: ProgramOnboarding, Inputs: inputs,
	})
}

// submit keeps the driver's bytes and writes the start of a workflow, to be handed over after the commit.
func (d *Domain) submit(ctx context.Context, tx Tx, drivers DriverSet, driverRef string, h Handoff) error {
	driver, err := drivers.Lookup(driverRef)
	if err != nil {
		return fault.Because(err, fault.Refused, "the driver %s is not installed: %s", driverRef, fault.Public(err))
	}
	content, err := drivers.Export(driverRef)
	if err != nil {
		return err
	}
	if err := tx.KeepBundle(ctx, driver.Digest, driverRef, content); err != nil {
		return err
	}
	h.Kind, h.DriverDigest, h.DueAt = HandoffStart, driver.Digest, d.clock.Now()
	return tx.AddHandoff(ctx, h)
}

// attemptOf reads the number of the attempt from the end of a workflow id; 0 when it is none of that prefix.
func attemptOf(workflowID, prefix string) int {
	rest, ok := strings.CutPrefix(workflowID, prefix)
	if !ok {
		return 0
	}
	var n int
	if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
		return 0
	}
	return n
}
