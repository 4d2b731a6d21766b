package rollout

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Who may report a change (D47). All runs of an organization share the source of the workflow service, and the catalogue only says that
// programs emit a type: so the run that emitted an event, its correlation, is compared with the run that was started for the row that the
// event would change. A change cannot be made without saying so, because Change requires it.

// reporter is who may report a change.
type reporter struct {
	// run reports whether the run of the id may, and expected names it in errors.
	run      func(id string) bool
	expected string
}

// anyRun may report what changes no row.
func anyRun() reporter { return reporter{run: func(string) bool { return true }} }

// theRun is one run.
func theRun(run string) reporter {
	return reporter{run: func(other string) bool { return other == run }, expected: "run " + run}
}

// ofRollout is the run of a rollout.
func ofRollout(rollout int64) (reporter, error) { return theRun(id.RolloutRun(rollout)), nil }

// ofDeployment is the run of the rollout that a deployment belongs to. The error is NotFound.
func ofDeployment(ctx context.Context, tx Tx, c cause, deployment int64) (reporter, error) {
	rollout, err := rolloutOf(ctx, tx, c, deployment)
	if err != nil {
		return reporter{}, err
	}
	return ofRollout(rollout)
}

// observers are standing reports: the engine emits them under this prefix in place of a run.
func observers() reporter {
	const prefix = "observer/"
	return reporter{run: func(run string) bool { return strings.HasPrefix(run, prefix) }, expected: "a standing report"}
}

// mayReport compares the run that emitted an event with that of the row that it would change. The error is Invalid, about the attribute
// correlationid: the event can never be applied, and its sender gets a receipt for it.
func mayReport(ctx context.Context, tx Tx, c cause, in core.Inbound, ch Change) error {
	r, err := ch.reporter(ctx, tx, c)
	if err != nil || r.run(in.Correlation) {
		return err
	}
	return fault.InvalidFields(fault.Field{
		Name: "correlationid", Problem: fmt.Sprintf("found %s of run %q, expected it from %s, which it would change something of", in.Type, in.Correlation, r.expected),
	})
}

func (Noted) reporter(context.Context, Tx, cause) (reporter, error) { return anyRun(), nil }

func (m Moved) reporter(context.Context, Tx, cause) (reporter, error) { return ofRollout(m.RolloutID) }

func (m EnvironmentMoved) reporter(context.Context, Tx, cause) (reporter, error) {
	return ofRollout(m.RolloutID)
}

func (m GateReached) reporter(context.Context, Tx, cause) (reporter, error) {
	return ofRollout(m.RolloutID)
}

func (m PassageRequested) reporter(context.Context, Tx, cause) (reporter, error) {
	return ofRollout(m.RolloutID)
}

func (m ApprovalRequested) reporter(context.Context, Tx, cause) (reporter, error) {
	return ofRollout(m.RolloutID)
}

func (m Aborted) reporter(context.Context, Tx, cause) (reporter, error) {
	return ofRollout(m.RolloutID)
}

func (m DeploymentMoved) reporter(ctx context.Context, tx Tx, c cause) (reporter, error) {
	return ofDeployment(ctx, tx, c, m.DeploymentID)
}

func (m GatePassage) reporter(ctx context.Context, tx Tx, c cause) (reporter, error) {
	return ofDeployment(ctx, tx, c, m.DeploymentID)
}

func (m DeploymentCommitted) reporter(ctx context.Context, tx Tx, c cause) (reporter, error) {
	return ofDeployment(ctx, tx, c, m.DeploymentID)
}

func (m Previewed) reporter(context.Context, Tx, cause) (reporter, error) {
	return theRun(id.PreviewRun(m.PreviewID)), nil
}

// An older attempt may report, too; its findings are ignored where they are applied.
func (m EnvironmentReadiness) reporter(context.Context, Tx, cause) (reporter, error) {
	return reporter{
		run:      func(run string) bool { return id.OnboardingAttempt(run, m.EnvironmentID) > 0 },
		expected: fmt.Sprintf("an onboarding of environment %d", m.EnvironmentID),
	}, nil
}

func (m ApplicationEnvironmentReadiness) reporter(context.Context, Tx, cause) (reporter, error) {
	return reporter{
		run:      func(run string) bool { return id.SetupAttempt(run, m.ApplicationEnvironmentID) > 0 },
		expected: fmt.Sprintf("a setup of application environment %d", m.ApplicationEnvironmentID),
	}, nil
}

// The engine reports the end of a run as that run.
func (m WorkflowEnded) reporter(context.Context, Tx, cause) (reporter, error) {
	return theRun(m.WorkflowID), nil
}

func (HealthSeen) reporter(context.Context, Tx, cause) (reporter, error) { return observers(), nil }

func (Reconciled) reporter(context.Context, Tx, cause) (reporter, error) { return observers(), nil }

func (ContactSeen) reporter(context.Context, Tx, cause) (reporter, error) { return observers(), nil }
