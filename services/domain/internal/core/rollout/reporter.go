package rollout

import (
	"context"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Who may report a change (D47). All runs of an organization share the source of the workflow service, and the catalogue only says that
// programs emit a type: so the run that emitted an event, its correlation, is compared with the run that was started for the row that the
// event would change. A change cannot be made without saying so, because Change requires it.

// reporter is who may report a change.
type reporter struct {
	// run reports whether the run of the id may, and expected names it in errors. For a deployment, it is the run of its rollout.
	run        func(id string) bool
	expected   string
	deployment int64
	// targets reports whether the runs of targets of the deployment's environment, which are children of the run of the rollout, may report
	// it, too.
	targets bool
	// observed is what a standing report is about, which is looked up for the run that registered it; nil for what needs no look.
	observed *Observed
}

// Observed is what a standing report is about: a service in an environment, an application environment, or else an environment.
type Observed struct{ Environment, Service, ApplicationEnvironment int64 }

// anyRun may report what changes no row.
func anyRun() reporter { return reporter{run: func(string) bool { return true }} }

// theRun is one run.
func theRun(run string) reporter {
	return reporter{run: func(other string) bool { return other == run }, expected: "run " + run}
}

// ofRollout is the run of a rollout.
func ofRollout(rollout int64) reporter { return theRun(id.RolloutRun(rollout)) }

// ofDeployment is the run of the rollout that a deployment belongs to.
func ofDeployment(deployment int64) reporter { return reporter{deployment: deployment} }

// observers are standing reports of runs that were started for what they are about. What an earlier release has registered does not say by
// which run; it is believed until the next deployment, setup or onboarding registers it again.
func observers(about Observed) reporter {
	r := reporter{expected: "a standing report that a run registered about what it was started for"}
	r.run = func(correlation string) bool {
		run, standing := id.ObserverRun(correlation)
		return standing && (run == "" || about.ApplicationEnvironment == 0 && about.Service == 0 && id.OnboardingAttempt(run, about.Environment) > 0)
	}
	if about.Service != 0 || about.ApplicationEnvironment != 0 {
		r.observed = &about
	}
	return r
}

// mayReport compares the run that emitted an event with that of the row that it would change. The error is Invalid, about the attribute
// correlationid: the event can never be applied, and its sender gets a receipt for it.
func mayReport(ctx context.Context, tx Tx, c cause, in core.Inbound, ch Change) error {
	r := ch.reporter()
	if r.deployment != 0 {
		rollout, err := rolloutOf(ctx, tx, c, r.deployment)
		if err != nil {
			return err
		}
		deployment, targets := r.deployment, r.targets
		r = ofRollout(rollout)
		if parent, environment, agent, _ := id.TargetRun(in.Correlation); targets && parent == id.RolloutRun(rollout) {
			may, err := tx.IsTarget(ctx, deployment, environment, agent)
			if err != nil || may {
				return err
			}
		}
	}
	if r.run(in.Correlation) {
		return nil
	}
	if run, standing := id.ObserverRun(in.Correlation); standing && r.observed != nil {
		may, err := tx.MayObserve(ctx, id.Rollout(run), id.ApplicationEnvironment(run), *r.observed)
		if err != nil || may {
			return err
		}
	}
	return fault.InvalidFields(fault.Field{
		Name:    "correlationid",
		Problem: fmt.Sprintf("found %s of run %q, expected it of %s, whose row it would change", in.Type, in.Correlation, r.expected),
	})
}

func (Noted) reporter() reporter { return anyRun() }

func (m Moved) reporter() reporter { return ofRollout(m.RolloutID) }

func (m EnvironmentMoved) reporter() reporter { return ofRollout(m.RolloutID) }

func (m GateReached) reporter() reporter { return ofRollout(m.RolloutID) }

func (m PassageRequested) reporter() reporter { return ofRollout(m.RolloutID) }

func (m ApprovalRequested) reporter() reporter { return ofRollout(m.RolloutID) }

func (m Aborted) reporter() reporter { return ofRollout(m.RolloutID) }

func (m DeploymentMoved) reporter() reporter { return ofDeployment(m.DeploymentID) }

func (m GatePassage) reporter() reporter { return ofDeployment(m.DeploymentID) }

func (m DeploymentCommitted) reporter() reporter {
	return reporter{deployment: m.DeploymentID, targets: true}
}

func (m DeploymentSubmitted) reporter() reporter {
	return reporter{deployment: m.Link.DeploymentID, targets: true}
}

// The run of a target reports its own end only. The run of the rollout reports the failure of one that does not: it has deployed nothing
// itself, so it cannot know that a target is healthy.
func (m TargetEnded) reporter() reporter {
	run := id.RolloutRun(m.RolloutID)
	expected := fmt.Sprintf("the child of run %s for target %d, attempt %d", run, m.AgentID, m.Attempt)
	if m.State == core.TargetFailed {
		expected += ", or that run"
	}
	return reporter{
		run: func(other string) bool {
			parent, environment, agent, attempt := id.TargetRun(other)
			return other == run && m.State == core.TargetFailed ||
				parent == run && environment == m.EnvironmentID && agent == m.AgentID && attempt == m.Attempt
		},
		expected: expected,
	}
}

func (m Previewed) reporter() reporter { return theRun(id.PreviewRun(m.PreviewID)) }

func (m PullRead) reporter() reporter { return theRun(id.ForgePullRun(m.PullID, m.Run)) }

func (m CheckReported) reporter() reporter { return theRun(id.CheckRun(m.RunID)) }

// An older attempt may report, too; its findings are ignored where they are applied.
func (m EnvironmentReadiness) reporter() reporter {
	return reporter{
		run:      func(run string) bool { return id.OnboardingAttempt(run, m.EnvironmentID) > 0 },
		expected: fmt.Sprintf("an onboarding of environment %d", m.EnvironmentID),
	}
}

func (m ApplicationEnvironmentReadiness) reporter() reporter {
	return reporter{
		run:      func(run string) bool { return id.SetupAttempt(run, m.ApplicationEnvironmentID) > 0 },
		expected: fmt.Sprintf("a setup of application environment %d", m.ApplicationEnvironmentID),
	}
}

// The engine reports what policies decided about a call as the run that makes it.
func (m CallReported) reporter() reporter { return theRun(m.WorkflowID) }

// The engine reports the end of a run as that run.
func (m WorkflowEnded) reporter() reporter { return theRun(m.WorkflowID) }

func (h HealthSeen) reporter() reporter {
	return observers(Observed{Environment: h.EnvironmentID, Service: h.ServiceID})
}

func (r Reconciled) reporter() reporter {
	return observers(Observed{ApplicationEnvironment: r.ApplicationEnvironmentID})
}

func (o ContactSeen) reporter() reporter { return observers(Observed{Environment: o.EnvironmentID}) }
