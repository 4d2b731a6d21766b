package rollout

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/planner"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// CreateRollout pins everything a rollout needs and hands it over to be run (R45). Rolling back is this too, with an
// earlier set (E12). While another is active, the application's policy decides.
func (u *UseCases) CreateRollout(ctx context.Context, a core.Actor, n NewRollout) (Promotion, error) {
	if err := core.CheckReason(n.Reason); err != nil {
		return Promotion{}, err
	}
	if err := planner.CheckChoice(n.Strategy); err != nil {
		return Promotion{}, err
	}
	var made Promotion
	err := core.Within(ctx, u.store, a, core.ActionCreateRollout, func(ctx context.Context, tx Tx) error {
		c := cause{Actor: a, at: u.clock.Now()}
		var err error
		if made.Queued, err = u.makeRoom(ctx, tx, c, n); err != nil || made.Queued != nil {
			return err
		}
		p, err := u.planRollout(ctx, tx, a.Organization, n.VersionSetID, n.part(), wish{strategy: n.Strategy, inputs: n.Inputs})
		if err != nil {
			return err
		}
		if err := a.MayIn(core.ActionCreateRollout, p.targets()...); err != nil {
			return err
		}
		if !n.Again && !givesInputs(n.Inputs) && !p.flow.Runbook && p.liveEverywhere() && len(p.behind) == 0 {
			return fault.New(
				fault.Refused, "%s is live already in every environment of %q; ask for it again to deploy it once more", p.versionSet.Name,
				p.application.Name,
			)
		}
		if err := p.refuseRequest(ctx, tx, a); err != nil {
			return err
		}
		if err := u.refuses(ctx, tx, c, p); err != nil {
			return err
		}
		if p.asks {
			made.Queued, err = u.compareFirst(ctx, tx, c, p, core.QueuedRollout{
				Reason: n.Reason, Strategy: n.Strategy, Inputs: n.Inputs, Environments: p.part(),
			})
			return err
		}
		r, err := u.createPlanned(ctx, tx, c, p, n.Reason)
		made.Rollout = &r
		return err
	})
	u.wake()
	if err != nil {
		return Promotion{}, err
	}
	return made, nil
}

// targets are where a plan goes.
func (p plan) targets() []core.Target {
	all := make([]core.Target, len(p.stops))
	for i, s := range p.stops {
		all[i] = s.environment.Target(p.application.ID)
	}
	return all
}

// driverRefs are the drivers of all stops.
func (p plan) driverRefs() []string {
	refs := make([]string, len(p.stops))
	for i, s := range p.stops {
		refs[i] = s.driver.Ref
	}
	return refs
}

// createPlanned writes the rollout, everything under it, their first journal rows, and the hand-over.
func (u *UseCases) createPlanned(ctx context.Context, tx Tx, c cause, p plan, reason string) (core.Rollout, error) {
	if err := u.refuseTargets(ctx, tx, c, p); err != nil {
		return core.Rollout{}, err
	}
	n := core.Rollout{
		ApplicationID: p.application.ID, VersionSetID: p.versionSet.ID, FlowDefinitionID: p.definition.ID, Plan: p.decision, Inputs: p.inputs,
	}
	if p.back != nil {
		n.RollbackOf = p.back.of
	}
	r, err := tx.AddRollout(ctx, n)
	if fault.Is(err, fault.Conflict) { // the database's own guard, should the lock ever be forgotten
		return r, fault.Because(err, fault.Refused, "application %q has an active rollout already; one at a time", p.application.Name)
	}
	if err != nil {
		return r, err
	}
	t := &tree{tx: tx, cause: c, rollout: r}
	if err := t.created(ctx, core.Subject{Kind: core.SubjectRollout, ID: r.ID}, reason); err != nil {
		return r, err
	}
	if err := t.request(ctx, core.VerbPlan, "", p.decision.Strategy.Words()+": "+p.decision.Why+p.inputWords()); err != nil {
		return r, err
	}
	if err := p.recordSkips(ctx, t); err != nil {
		return r, err
	}
	u.skipped.count(p)
	// Apart from events, this is all that the program ever sees of the domain: it cannot ask back, so that a replay
	// reads the same (R3, E23).
	in := deployInput{
		Rollout: rolloutInput{
			ID: r.ID, OrganizationID: c.Organization, Application: setup.Named{ID: p.application.ID, Name: p.application.Name},
			Passages: r.Passages, Retry: p.retry, OnFailure: p.onFailure, PromoteFull: p.inFull, Strategy: p.decision.Strategy, Inputs: p.inputs,
		},
		VersionSet: versionSetInput{p.versionSet.ID, p.versionSet.Name, p.versionsOf(0)},
		Pipeline:   p.program,
	}
	if u.url != "" {
		in.Rollout.URL = fmt.Sprintf("%s/rollouts/rollout_%d", u.url, r.ID)
	}
	if err := p.readBefore(ctx, tx, c.Organization); err != nil {
		return r, err
	}
	for i, s := range p.stops {
		// Another release may carry other bytes under the same name@major; what this rollout runs has to be found again
		// to the byte (D7, R22).
		content, err := p.drivers.Export(s.driver.Ref)
		if err != nil {
			return r, err
		}
		if err := tx.KeepBundle(ctx, s.driver.Digest, s.driver.Ref, content); err != nil {
			return r, err
		}
		e, err := u.createStop(ctx, t, p, s, i+1)
		if err != nil {
			return r, err
		}
		if err := p.pinPlaces(ctx, tx, r.ID, s); err != nil {
			return r, err
		}
		if err := p.hold(ctx, tx, c, r, s); err != nil {
			return r, err
		}
		in.Rollout.Environments = append(in.Rollout.Environments, e)
	}
	if err := p.pinGates(ctx, tx, r.ID); err != nil {
		return r, err
	}
	if err := p.pinDeadlines(ctx, t); err != nil {
		return r, err
	}
	if err := u.pinPolicies(ctx, tx, c, p, r.ID); err != nil {
		return r, err
	}
	if err := u.forCalls(ctx, tx, c, p, &in.Rollout); err != nil {
		return r, err
	}
	inputs, err := json.Marshal(in)
	if err != nil {
		return r, fmt.Errorf("encode inputs of rollout %d: %w", r.ID, err)
	}
	// One workflow runs all stops (D25), with the driver of each.
	return r, setup.SubmitCombined(ctx, tx, p.drivers, u.clock.Now(), p.driverRefs(), core.Handoff{
		WorkflowID: rolloutWorkflow(r.ID), Subject: core.HandoffRollout, SubjectID: r.ID, Program: core.ProgramDeploy, Inputs: inputs,
	})
}

func (u *UseCases) createStop(ctx context.Context, t *tree, p plan, s stop, position int) (rolloutEnvironmentInput, error) {
	in := p.input(s, position)
	var err error
	if in.JobNamespace, err = setup.JobNamespace(p.drivers, s.environment, s.step); err != nil {
		return in, err
	}
	e, err := t.tx.AddRolloutEnvironment(ctx, core.RolloutEnvironment{
		RolloutID: t.rollout.ID, EnvironmentID: s.environment.ID, Position: position, DriverBindingID: s.environment.Binding.ID,
		DriverDigest: s.driver.Digest, PreviousVersionSetID: p.live[s.environment.ID],
		Weights: s.weights(), SkipsWeights: p.skipsWeights(s),
		Follows: p.follows(position - 1), NeedsHealth: p.back == nil || p.back.forward,
	})
	if err != nil {
		return in, err
	}
	if err := t.created(ctx, core.Subject{Kind: core.SubjectRolloutEnvironment, ID: e.ID}, ""); err != nil {
		return in, err
	}
	if s.fleet != nil {
		if err := t.tx.AddRolloutFleet(ctx, e.ID, s.fleet.pinned, s.fleet.own(), s.fleet.waves); err != nil {
			return in, err
		}
		in.Fleet = s.fleet.input()
	}
	for _, svc := range p.services {
		versions := p.versionsOf(svc.ID)
		if len(versions) == 0 {
			continue // a service that came after the set was made
		}
		if s.step.RunsJobs() { // its jobs may run the versions, and nothing is deployed
			in.Services = append(in.Services, servedInput{setup.Named{ID: svc.ID, Name: svc.Name}, versions})
			continue
		}
		dep, err := t.tx.AddDeployment(ctx, core.Deployment{RolloutEnvironmentID: e.ID, ServiceID: svc.ID})
		if err != nil {
			return in, err
		}
		if err := t.created(ctx, core.Subject{Kind: core.SubjectDeployment, ID: dep.ID}, ""); err != nil {
			return in, err
		}
		in.Deployments = append(in.Deployments, deploymentInput{
			ID: dep.ID, Service: setup.Named{ID: svc.ID, Name: svc.Name}, Versions: versions, Before: p.before[s.environment.ID][svc.ID],
		})
	}
	return in, nil
}

// input is a program's input about a stop, without its deployments.
func (p plan) input(s stop, position int) rolloutEnvironmentInput {
	asked, _ := s.entry()
	in := rolloutEnvironmentInput{
		EnvironmentInput: setup.DescribeEnvironment(s.environment), Position: position, Approval: asked, Gates: s.step.Gates,
		ApplicationEnvironment: applicationEnvironmentInput{s.application.ID, s.step.Config, s.application.Discovered},
	}
	if p.decision.Strategy == planner.Quick {
		in.Gates, in.SkippedGates = p.passedGates(s), in.Gates
	}
	in.ComparedCommit = p.compared[s.environment.ID]
	if in.RunsJobs = s.step.RunsJobs(); in.RunsJobs {
		in.Deployments = []deploymentInput{}
	}
	// Always a list: a program of a driver that iterates over it without asking must not end on a null.
	if in.Gates == nil {
		in.Gates = []core.FlowGate{}
	}
	return in
}

// passedGates are the gates of a stop that the program of a quick sync sees: none, so that it cannot stop at any. Where the rollout would
// not stop for another reason, as at the first deployment, its manifests get the weights, without soak times or approvals.
func (p plan) passedGates(s stop) []core.FlowGate {
	if p.skipsWeights(s) == core.SkipsQuickSync {
		return nil
	}
	gates := make([]core.FlowGate, len(s.step.Gates))
	for i, g := range s.step.Gates {
		gates[i].Weight = g.Weight
	}
	return gates
}

func rolloutWorkflow(rollout int64) string { return id.RolloutRun(rollout) }

// NewRollout asks for a rollout of a version set by the latest pipeline of its application.
type NewRollout struct {
	// VersionSetID may be any set of the application, also an earlier one: that is a rollback (E12).
	VersionSetID int64
	Reason       string
	// Again deploys it also where it is live in every environment already.
	Again bool
	// Scope is where it goes; the zero value is the whole pipeline.
	Scope Scope
	// Strategy decides whether it is to stop at weights.
	Strategy planner.Choice
	// Inputs are those that the pipeline declares, an object of JSON; empty for none.
	Inputs json.RawMessage
}

// part makes the plan one of a part of the pipeline; nil for all of it.
func (n NewRollout) part() *rollbackOf {
	if n.Scope.all() {
		return nil
	}
	return &rollbackOf{forward: true, scope: n.Scope}
}
