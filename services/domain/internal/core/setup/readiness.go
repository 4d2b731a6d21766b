package setup

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ReadinessTx is the part of a transaction that records whether environments and applications in them are ready.
type ReadinessTx interface {
	StartTx
	core.PlacesTx
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	ServicesByApplication(ctx context.Context, organization int64, applications []int64) (map[int64][]core.Service, error)
	LatestFlowDefinitions(ctx context.Context, organization int64, applications []int64) (map[int64]core.FlowDefinition, error)
	// LockEnvironment locks one against change, and waits for every use case that reads AllEnvironments.
	LockEnvironment(ctx context.Context, id int64) (core.BoundEnvironment, error)
	// SaveEnvironment writes readiness and the onboarding attempt.
	SaveEnvironment(ctx context.Context, e core.Environment) error
	// PipelinesTo and ApplicationEnvironmentsByApplication are those of Reads and Tx.
	PipelinesTo(ctx context.Context, organization, environment, after int64, most int) ([]core.FlowDefinition, error)
	ApplicationEnvironmentsByApplication(
		ctx context.Context, organization int64, applications []int64,
	) (map[int64][]core.ApplicationEnvironment, error)
	// ClaimingEnvironments are all environments with their latest bindings, without a lock: also those that are archived, because what
	// belongs to them stays theirs.
	ClaimingEnvironments(ctx context.Context) ([]core.BoundEnvironment, error)
	// LockApplicationEnvironment comes after the lock of its environment, if both are wanted.
	LockApplicationEnvironment(ctx context.Context, id int64) (core.ApplicationEnvironment, error)
	// LockApplicationsIn locks what applications whose pipelines go to an environment have there, in the order of its numbers, behind one.
	LockApplicationsIn(ctx context.Context, environment, after int64, most int) ([]core.ApplicationEnvironment, error)
	// AwaitingSetup locks the application environments that wait for an environment.
	AwaitingSetup(ctx context.Context, environment int64) ([]core.ApplicationEnvironment, error)
	// SaveApplicationEnvironment writes readiness, discovered, and the two setup fields.
	SaveApplicationEnvironment(ctx context.Context, e core.ApplicationEnvironment) error
}

// Onboarded records what an onboarding of an environment found. Workflow is the run that reports it.
func (u *UseCases) Onboarded(
	ctx context.Context, tx ReadinessTx, organization int64, workflow string, environment int64, ready bool, reason string,
) error {
	e, err := tx.LockEnvironment(ctx, environment)
	if err != nil {
		return err
	}
	if id.OnboardingAttempt(workflow, e.ID) != e.OnboardingAttempt {
		return nil // an older attempt; the present one reports for itself
	}
	return u.environmentIs(ctx, tx, organization, e, ready, reason)
}

// environmentIs records a readiness, and submits the setups that have waited for it.
func (u *UseCases) environmentIs(
	ctx context.Context, tx ReadinessTx, organization int64, e core.BoundEnvironment, ready bool, reason string,
) error {
	e.Readiness, e.ReadinessReason = core.ReadinessNot, reason
	if ready {
		e.Readiness, e.ReadinessReason = core.ReadinessReady, ""
	}
	if err := tx.SaveEnvironment(ctx, e.Environment); err != nil || !ready {
		return err
	}
	waiting, err := tx.AwaitingSetup(ctx, e.ID)
	if err != nil || len(waiting) == 0 {
		return err
	}
	// The pipeline was made when the environment was not ready, so nothing else will begin these setups (E54).
	ids := make([]int64, len(waiting))
	for i, ae := range waiting {
		ids[i] = ae.ApplicationID
	}
	applications, err := tx.ApplicationsByID(ctx, organization, ids)
	if err != nil {
		return err
	}
	for _, ae := range waiting {
		step, ok, err := u.latestStep(ctx, tx, organization, ae.ApplicationID, e.Name)
		if err != nil {
			return err
		}
		if !ok {
			continue // a later pipeline no longer goes there
		}
		if _, err := u.setUp(ctx, tx, organization, applications[ae.ApplicationID], e, ae, step); err != nil {
			return err
		}
	}
	return nil
}

// SetupFound records what a setup of an application in an environment found. Workflow is the run that reports it.
func (u *UseCases) SetupFound(
	ctx context.Context, tx ReadinessTx, organization int64, workflow string, number int64, ready bool, reason string,
	discovered json.RawMessage,
) error {
	ae, err := tx.LockApplicationEnvironment(ctx, number)
	if err != nil {
		return err
	}
	if id.SetupAttempt(workflow, ae.ID) != ae.SetupAttempt || ae.SetupWanted {
		return nil // an older attempt; another is under way, or waits for its environment
	}
	ae.Readiness, ae.ReadinessReason = core.ReadinessNot, reason
	if ready {
		problem, err := u.foundOfOthers(ctx, tx, organization, ae, discovered)
		if err != nil {
			return err
		}
		if ready, ae.ReadinessReason = problem == "", problem; ready {
			ae.Readiness, ae.Discovered = core.ReadinessReady, discovered
		}
	}
	if err := tx.SaveApplicationEnvironment(ctx, ae); err != nil || !ready {
		return err
	}
	return u.announceSetup(ctx, tx, organization, ae)
}

// WorkflowStopped closes what an onboarding or a setup was run for, unless its program has done so; false for any other workflow.
func (u *UseCases) WorkflowStopped(
	ctx context.Context, tx ReadinessTx, organization int64, workflow, reason string,
) (known bool, err error) {
	var n int64
	var attempt int
	if _, err := fmt.Sscanf(workflow, "environment-%d-onboarding-%d", &n, &attempt); err == nil && workflow == id.OnboardingRun(n, attempt) {
		e, err := tx.LockEnvironment(ctx, n)
		// The end of an older attempt comes late after a retry; it says nothing about the new one.
		if err != nil || e.Readiness != core.ReadinessPending || attempt != e.OnboardingAttempt {
			return true, err
		}
		return true, u.environmentIs(ctx, tx, organization, e, false, reason)
	}
	if _, err := fmt.Sscanf(workflow, "application-environment-%d-setup-%d", &n, &attempt); err == nil && workflow == id.SetupRun(n, attempt) {
		ae, err := tx.LockApplicationEnvironment(ctx, n)
		if err != nil || ae.Readiness != core.ReadinessPending || ae.SetupWanted || attempt != ae.SetupAttempt {
			return true, err
		}
		ae.Readiness, ae.ReadinessReason = core.ReadinessNot, reason
		return true, tx.SaveApplicationEnvironment(ctx, ae)
	}
	return false, nil
}
