package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// change sends a mutation whose payload has one object and errors.
func change[T any](ctx context.Context, c *Client, mutation, inputType, object, fields string, input map[string]any) (T, error) {
	var result T
	payload, err := send(ctx, c, mutation, inputType, object+` { `+fields+` }`, input)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(payload[object], &result); err != nil {
		return result, fmt.Errorf("decode %s of %s: %w", object, mutation, err)
	}
	return result, nil
}

// send sends a mutation, and returns its payload, by field.
func send(ctx context.Context, c *Client, mutation, inputType, selection string, input map[string]any) (map[string]json.RawMessage, error) {
	var data map[string]map[string]json.RawMessage
	document := `mutation($input: ` + inputType + `!) { ` + mutation + `(input: $input) { ` + selection + ` errors { field message code } } }`
	if err := c.do(ctx, document, map[string]any{"input": input}, &data); err != nil {
		return nil, err
	}
	var errs []UserError
	if err := json.Unmarshal(data[mutation]["errors"], &errs); err != nil {
		return nil, fmt.Errorf("decode errors of %s: %w", mutation, err)
	}
	return data[mutation], refusal(errs)
}

// ServiceInput describes a service to create.
type ServiceInput struct {
	// Name of the service.
	Name string
	// Image is the repository of its images, without a tag: registry.example.com/shop/api.
	Image string
}

// CreateApplication creates an application whose services have one OCI image each.
func (c *Client) CreateApplication(ctx context.Context, name, description string, services []ServiceInput) (Application, error) {
	inputs := make([]map[string]any, len(services))
	for i, s := range services {
		inputs[i] = map[string]any{"name": s.Name, "artifactSources": []map[string]any{
			{"sourceRef": "oci-image@1", "sourceConfig": map[string]any{"image": s.Image}},
		}}
	}
	return change[Application](ctx, c, "createApplication", "CreateApplicationInput", "application", applicationFields,
		map[string]any{"name": name, "description": description, "services": inputs})
}

// EnvironmentInput describes an environment to create.
type EnvironmentInput struct {
	Name, Description string
	// Tier is DEVELOPMENT, QA, STAGING or PRODUCTION.
	Tier string
	// DriverRef is name@major.
	DriverRef string
	// DriverConfig is the driver's configuration, which the driver's schema validates.
	DriverConfig any
	// Fleet makes it an environment of many clusters; nil for one.
	Fleet any
}

// CreateEnvironment creates an environment, and starts its onboarding.
func (c *Client) CreateEnvironment(ctx context.Context, in EnvironmentInput) (Environment, error) {
	input := map[string]any{
		"name": in.Name, "description": in.Description, "tier": in.Tier, "driverRef": in.DriverRef, "driverConfig": in.DriverConfig,
	}
	if in.Fleet != nil {
		input["fleet"] = in.Fleet
	}
	return change[Environment](ctx, c, "createEnvironment", "CreateEnvironmentInput", "environment", environmentFields, input)
}

// EnvironmentChange describes a change of an environment. What is nil stays as it is.
type EnvironmentChange struct {
	// Environment is its id.
	Environment string
	Description *string
	// DriverRef and DriverConfig are those of the next driver binding.
	DriverRef    *string
	DriverConfig any
	// Fleet is the next one; an object without members makes it an environment of one cluster.
	Fleet any
	// BindingVersion is the binding that the change was made from; 0 for any.
	BindingVersion int
	Reason         string
}

// UpdateEnvironment changes an environment, by a new driver binding where its driver or configuration changes.
func (c *Client) UpdateEnvironment(ctx context.Context, in EnvironmentChange) (Environment, error) {
	input := map[string]any{"environmentId": in.Environment, "reason": in.Reason}
	if in.Description != nil {
		input["description"] = *in.Description
	}
	if in.DriverRef != nil {
		input["driverRef"], input["driverConfig"] = *in.DriverRef, in.DriverConfig
	}
	if in.Fleet != nil {
		input["fleet"] = in.Fleet
	}
	if in.BindingVersion != 0 {
		input["bindingVersion"] = in.BindingVersion
	}
	return change[Environment](ctx, c, "updateEnvironment", "UpdateEnvironmentInput", "environment", environmentFields, input)
}

// createdFields are those of a rollout that was just created.
const createdFields = rolloutFields + ` versionSet { id name warnings }`

// NewRollout says how to promote a version set; the zero value of all but VersionSet is the default.
type NewRollout struct {
	VersionSet, Reason string
	// Again deploys it also where it is live everywhere.
	Again bool
	// Only are the environments that it goes to; none for the whole pipeline.
	Only []string
	// Strategy is AUTO, QUICK or PIPELINE; empty for AUTO.
	Strategy string
	// Inputs are those that the pipeline declares, an object; empty for none.
	Inputs json.RawMessage
}

// CreateRollout starts to promote a version set. The error is a QueuedError if it waits in the queue of its application.
func (c *Client) CreateRollout(ctx context.Context, n NewRollout) (Rollout, error) {
	input := map[string]any{"versionSetId": n.VersionSet, "reason": n.Reason}
	if n.Again {
		input["again"] = true
	}
	if len(n.Only) > 0 {
		input["environments"] = n.Only
	}
	if n.Strategy != "" {
		input["strategy"] = n.Strategy
	}
	if len(n.Inputs) > 0 {
		input["inputs"] = n.Inputs
	}
	payload, err := send(ctx, c, "createRollout", "CreateRolloutInput", `rollout { `+createdFields+` } queued { `+queuedFields+` }`, input)
	if err != nil {
		return Rollout{}, err
	}
	var one *Rollout
	if err := json.Unmarshal(payload["rollout"], &one); err != nil {
		return Rollout{}, fmt.Errorf("decode rollout of createRollout: %w", err)
	}
	if one != nil {
		return *one, nil
	}
	var queued *QueuedRollout
	if encoded := payload["queued"]; len(encoded) > 0 {
		if err := json.Unmarshal(encoded, &queued); err != nil {
			return Rollout{}, fmt.Errorf("decode queued of createRollout: %w", err)
		}
	}
	if queued == nil {
		queued = &QueuedRollout{}
	}
	if queued.VersionSet.ID == "" {
		queued.VersionSet.ID = n.VersionSet
	}
	return Rollout{}, QueuedError{*queued}
}

// QueuedError means that a rollout is pending: it waits for the end of the active one, or for the drivers to compare its manifests.
type QueuedError struct{ Queued QueuedRollout }

// Error returns the message.
func (e QueuedError) Error() string {
	why := e.Queued.Words()
	if why == "" { // an earlier release
		why = "it begins when what it waits for has ended"
	}
	text := fmt.Sprintf("rollout: %s is pending: %s", e.Queued.VersionSet.ID, why)
	if e.Queued.ID != "" {
		text += "; to take it back, cancel " + e.Queued.ID
	}
	return text
}

// CancelQueuedRollout takes a rollout out of the queue of its application.
func (c *Client) CancelQueuedRollout(ctx context.Context, queued, reason string) (QueuedRollout, error) {
	return change[QueuedRollout](ctx, c, "cancelQueuedRollout", "CancelQueuedRolloutInput", "queuedRollout", queuedFields,
		map[string]any{"queuedRolloutId": queued, "reason": reason})
}

// AbortRollout aborts the deployments in progress.
func (c *Client) AbortRollout(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "abortRollout", "AbortRolloutInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// RetryRollout restarts an aborted rollout; for a finished one it starts and returns another.
func (c *Client) RetryRollout(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "retryRollout", "RetryRolloutInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// SetRolloutPolicy sets how the rollouts of an application, given by name or identifier, handle failures and each other.
func (c *Client) SetRolloutPolicy(ctx context.Context, application string, p RolloutPolicy) (Application, error) {
	return change[Application](ctx, c, "setRolloutPolicy", "SetRolloutPolicyInput", "application", applicationFields,
		map[string]any{"application": application, "onFailure": p.OnFailure, "onNewer": p.OnNewer})
}

// ApproveGate approves a gate.
func (c *Client) ApproveGate(ctx context.Context, rollout, gate, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "approveGate", "ResolveGateInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "gateId": gate, "reason": reason})
}

// RejectGate rejects a gate.
func (c *Client) RejectGate(ctx context.Context, rollout, gate, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "rejectGate", "ResolveGateInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "gateId": gate, "reason": reason})
}

// CancelRollout cancels a rollout and leaves everything where it is.
func (c *Client) CancelRollout(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "cancelRollout", "CancelRolloutInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// CancelThen cancels a rollout with a choice of what happens then: LEAVE, ABORT or ROLLBACK. For the last one it returns the rollback.
func (c *Client) CancelThen(ctx context.Context, rollout, then, reason string) (Rollout, error) {
	of := "rollout"
	if then == "ROLLBACK" {
		of = "rollback"
	}
	return change[Rollout](ctx, c, "cancelRollout", "CancelRolloutInput", of, rolloutFields,
		map[string]any{"rolloutId": rollout, "then": then, "reason": reason})
}

// PauseRollout pauses a rollout at its gate, or at the next one.
func (c *Client) PauseRollout(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "pauseRollout", "PauseRolloutInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// ResumeRollout resumes a paused rollout.
func (c *Client) ResumeRollout(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "resumeRollout", "ResumeRolloutInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// RollbackInput says how a rollout is rolled back.
type RollbackInput struct {
	// VersionSet is the version set to return to; empty for the one that was live before.
	VersionSet, Reason string
	// Environments are those to roll back, all if empty, and Exclude those to leave unchanged; by name or identifier.
	Environments, Exclude []string
	// BreakGlass bypasses the approvals of the rollback.
	BreakGlass bool
}

// RollbackRollout starts a rollout of an earlier version set, and returns it.
func (c *Client) RollbackRollout(ctx context.Context, rollout string, in RollbackInput) (Rollout, error) {
	input := map[string]any{"rolloutId": rollout, "reason": in.Reason}
	if in.VersionSet != "" {
		input["versionSetId"] = in.VersionSet
	}
	if len(in.Environments) > 0 {
		input["environments"] = in.Environments
	}
	if len(in.Exclude) > 0 {
		input["exclude"] = in.Exclude
	}
	if in.BreakGlass {
		input["breakGlass"] = true
	}
	return change[Rollout](ctx, c, "rollbackRollout", "RollbackRolloutInput", "rollout", createdFields, input)
}

// BreakGlass bypasses the approvals of a rollout.
func (c *Client) BreakGlass(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "breakGlass", "BreakGlassInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// StopAutomaticRollback cancels the automatic rollback that is scheduled for a rollout.
func (c *Client) StopAutomaticRollback(ctx context.Context, rollout, reason string) (Rollout, error) {
	return change[Rollout](ctx, c, "stopAutomaticRollback", "StopAutomaticRollbackInput", "rollout", rolloutFields,
		map[string]any{"rolloutId": rollout, "reason": reason})
}

// SetEnvironmentApproval sets the approval that an environment requires of every new rollout; nil for none.
func (c *Client) SetEnvironmentApproval(ctx context.Context, environment string, a *EnvironmentApproval) (Environment, error) {
	return change[Environment](ctx, c, "setEnvironmentApproval", "SetEnvironmentApprovalInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "approval": a})
}

// SetDirectChanges decides whether workflows that belong to no rollout may change an environment that is protected otherwise.
func (c *Client) SetDirectChanges(ctx context.Context, environment string, allowed bool, reason string) (Environment, error) {
	return change[Environment](ctx, c, "setDirectChanges", "SetDirectChangesInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "allowed": allowed, "reason": reason})
}

// RetryOnboarding repeats the onboarding of an environment.
func (c *Client) RetryOnboarding(ctx context.Context, environment string) (Environment, error) {
	return change[Environment](ctx, c, "retryEnvironmentOnboarding", "RetryEnvironmentOnboardingInput", "environment", environmentFields,
		map[string]any{"environmentId": environment})
}

// RetrySetup repeats the setup of an application environment.
func (c *Client) RetrySetup(ctx context.Context, applicationEnvironment string) (ApplicationEnvironment, error) {
	return change[ApplicationEnvironment](ctx, c, "retryApplicationEnvironmentSetup", "RetryApplicationEnvironmentSetupInput",
		"applicationEnvironment", "id environment { id name"+displayNewer+" } readiness readinessReason",
		map[string]any{"applicationEnvironmentId": applicationEnvironment})
}

// SetRollbackPolicy sets when an application, given by name or identifier, rolls back automatically.
func (c *Client) SetRollbackPolicy(ctx context.Context, application string, p RollbackPolicy) (Application, error) {
	return change[Application](ctx, c, "setRollbackPolicy", "SetRollbackPolicyInput", "application", applicationFields, map[string]any{
		"application": application, "onFailed": p.OnFailed, "onDegraded": p.OnDegraded, "degradedAfterSeconds": p.DegradedAfterSeconds,
		"inFull": p.InFull,
	})
}
