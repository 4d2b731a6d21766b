package core

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// CreateApplication records an application with its services and their sources, all or nothing (E52).
func (d *Domain) CreateApplication(ctx context.Context, a Actor, n NewApplication) (Application, error) {
	return Application{}, fault.New(fault.Unavailable, "creating applications is not there yet")
}

// CreateEnvironment records an environment with its first driver binding and submits its onboarding (E53).
func (d *Domain) CreateEnvironment(ctx context.Context, a Actor, n NewEnvironment) (Environment, error) {
	return Environment{}, fault.New(fault.Unavailable, "creating environments is not there yet")
}

// RetryOnboarding submits the onboarding of an environment again (E29).
func (d *Domain) RetryOnboarding(ctx context.Context, a Actor, environment int64) (Environment, error) {
	return Environment{}, fault.New(fault.Unavailable, "onboarding is not there yet")
}

// CreateFlowDefinition records a new version of a pipeline and submits the setups it needs (E33, E54).
func (d *Domain) CreateFlowDefinition(ctx context.Context, a Actor, n NewFlowDefinition) (FlowDefinition, error) {
	return FlowDefinition{}, fault.New(fault.Unavailable, "creating flow definitions is not there yet")
}

// RetrySetup submits the setup of an application environment again (E29).
func (d *Domain) RetrySetup(ctx context.Context, a Actor, applicationEnvironment int64) (ApplicationEnvironment, error) {
	return ApplicationEnvironment{}, fault.New(fault.Unavailable, "setup is not there yet")
}

// CreateRollout pins everything a rollout needs and hands it over to be run (R45).
func (d *Domain) CreateRollout(ctx context.Context, a Actor, n NewRollout) (Rollout, error) {
	return Rollout{}, fault.New(fault.Unavailable, "creating rollouts is not there yet")
}

// ApproveGate resolves an open gate: the rollout goes on (R41).
func (d *Domain) ApproveGate(ctx context.Context, a Actor, r Resolution) (Rollout, error) {
	return Rollout{}, fault.New(fault.Unavailable, "approval is not there yet")
}

// RejectGate resolves an open gate: the rollout is cancelled (R41).
func (d *Domain) RejectGate(ctx context.Context, a Actor, r Resolution) (Rollout, error) {
	return Rollout{}, fault.New(fault.Unavailable, "rejection is not there yet")
}

// CancelRollout ends a rollout where it stands, whatever gate is open (R41).
func (d *Domain) CancelRollout(ctx context.Context, a Actor, rollout int64, reason string) (Rollout, error) {
	return Rollout{}, fault.New(fault.Unavailable, "cancelling is not there yet")
}
