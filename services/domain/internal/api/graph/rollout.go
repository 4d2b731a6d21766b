package graph

import (
	"context"
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// rolloutResolver resolves the fields of Rollout that are loaded.
type rolloutResolver struct{}

// Application is what is rolled out.
func (rolloutResolver) Application(ctx context.Context, r *model.Rollout) (model.Application, error) {
	if a, read := r.ReadApplication(); read {
		return a, nil
	}
	return required(ctx, loadersOf(ctx).applications, model.KindApplication, r.ApplicationID, model.WrapApplication)
}

// VersionSet is which versions of it.
func (rolloutResolver) VersionSet(ctx context.Context, r *model.Rollout) (model.VersionSet, error) {
	return required(ctx, loadersOf(ctx).versionSets, model.KindVersionSet, r.VersionSetID, model.WrapVersionSet)
}

// FlowDefinition is the pipeline as it was when the rollout was made.
func (rolloutResolver) FlowDefinition(ctx context.Context, r *model.Rollout) (model.FlowDefinition, error) {
	return required(ctx, loadersOf(ctx).flows, model.KindFlowDefinition, r.FlowDefinitionID, model.WrapFlowDefinition)
}

// RollbackOf is the one that it takes back.
func (rolloutResolver) RollbackOf(ctx context.Context, r *model.Rollout) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, r.RollbackOf, model.WrapRollout)
}

// RolledBackBy is the newest one that takes it back.
func (rolloutResolver) RolledBackBy(ctx context.Context, r *model.Rollout) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, r.RolledBackBy, model.WrapRollout)
}

// Causes are what led to it.
func (rolloutResolver) Causes(ctx context.Context, r *model.Rollout) ([]model.Transition, error) {
	return list(ctx, loadersOf(ctx).causesOf, r.ID, model.WrapTransition)
}

// AutomaticRollback is what the policy wants of it.
func (rolloutResolver) AutomaticRollback(ctx context.Context, r *model.Rollout) (*model.AutomaticRollback, error) {
	return optional(ctx, loadersOf(ctx).outlookOf, r.ID, func(o core.RollbackOutlook) model.AutomaticRollback {
		return model.AutomaticRollback{RollbackOutlook: o}
	})
}

// SkippedEnvironments are those of its pipeline that it does not go to.
func (rolloutResolver) SkippedEnvironments(ctx context.Context, r *model.Rollout) ([]model.SkippedEnvironment, error) {
	return list(ctx, loadersOf(ctx).skipsOf, r.ID, func(s core.SkippedEnvironment) model.SkippedEnvironment {
		return model.SkippedEnvironment{SkippedEnvironment: s}
	})
}

// Deadlines are those that it has pinned.
func (rolloutResolver) Deadlines(ctx context.Context, r *model.Rollout) ([]model.RolloutDeadline, error) {
	return list(ctx, loadersOf(ctx).deadlinesOf, r.ID, func(d view.Deadline) model.RolloutDeadline {
		return model.RolloutDeadline{Deadline: d}
	})
}

// rolloutDeadline resolves those of RolloutDeadline.
type rolloutDeadline struct{}

// Environment is which of them it is about.
func (rolloutDeadline) Environment(ctx context.Context, d *model.RolloutDeadline) (*model.Environment, error) {
	return optional(ctx, loadersOf(ctx).environments, d.EnvironmentID, model.WrapEnvironment)
}

// automaticRollback resolves those of AutomaticRollback.
type automaticRollback struct{}

// Rollout is the one that came of it; null before.
func (automaticRollback) Rollout(ctx context.Context, r *model.AutomaticRollback) (*model.Rollout, error) {
	return optional(ctx, loadersOf(ctx).rollouts, r.MadeRolloutID, model.WrapRollout)
}

// breakGlass resolves those of BreakGlass.
type breakGlass struct{}

// Principal is who broke it.
func (breakGlass) Principal(ctx context.Context, g *model.BreakGlass) (*model.Member, error) {
	return optional(ctx, loadersOf(ctx).members, g.ID, model.WrapMember)
}

// skippedEnvironment resolves those of SkippedEnvironment.
type skippedEnvironment struct{}

// Environment is which of them it is.
func (skippedEnvironment) Environment(ctx context.Context, s *model.SkippedEnvironment) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, s.EnvironmentID, model.WrapEnvironment)
}

// OpenGates are the requests for approval that nobody has resolved yet.
func (rolloutResolver) OpenGates(ctx context.Context, r *model.Rollout) ([]model.Gate, error) {
	return list(ctx, loadersOf(ctx).gatesOf, r.ID, model.WrapGate)
}

// Environments are its stops, in the order of promotion.
func (rolloutResolver) Environments(ctx context.Context, r *model.Rollout) ([]model.RolloutEnvironment, error) {
	return list(ctx, loadersOf(ctx).rolloutEnvironmentsOf, r.ID, model.WrapRolloutEnvironment)
}

// Journal is one page of everything that happened, oldest first (R39).
func (rolloutResolver) Journal(
	ctx context.Context, r *model.Rollout, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.JournalConnection, error) {
	p, err := page(journalPage, first, after, last, before, orderBy)
	if err != nil {
		return model.JournalConnection{}, err
	}
	l := loadersOf(ctx)
	rows, _, err := l.journalOf.load(ctx, paged{r.ID, p})
	return model.JournalConnection(model.Connect[model.JournalEdge](rows, model.WrapTransition, func(ctx context.Context) (int, error) {
		n, _, err := l.journalCountOf.load(ctx, r.ID)
		return n, err
	})), err
}

// rolloutEnvironment resolves those of RolloutEnvironment.
type rolloutEnvironment struct{}

// Status is its state for people.
func (rolloutEnvironment) Status(ctx context.Context, e *model.RolloutEnvironment) (core.RolloutStatus, error) {
	r, _, err := loadersOf(ctx).rollouts.load(ctx, e.RolloutID)
	return r.StatusWithin(e.State), err
}

// Environment is which of them it is.
func (rolloutEnvironment) Environment(ctx context.Context, e *model.RolloutEnvironment) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, e.EnvironmentID, model.WrapEnvironment)
}

// Follows are the environments whose active checks guard its entrance (R3-16): those of the pipeline's step, or the one before it.
func (r rolloutEnvironment) Follows(ctx context.Context, e *model.RolloutEnvironment) ([]model.Environment, error) {
	all, _, err := loadersOf(ctx).rolloutEnvironmentsOf.load(ctx, e.RolloutID)
	if err != nil {
		return nil, err
	}
	followed := []model.Environment{}
	for _, number := range core.Followed(all, e.RolloutEnvironment) {
		environment, err := required(ctx, loadersOf(ctx).environments, model.KindEnvironment, number, model.WrapEnvironment)
		if err != nil {
			return nil, err
		}
		followed = append(followed, environment)
	}
	return followed, nil
}

// DriverBinding is the version of it that the rollout has pinned (D9).
func (rolloutEnvironment) DriverBinding(ctx context.Context, e *model.RolloutEnvironment) (model.DriverBinding, error) {
	return required(ctx, loadersOf(ctx).bindings, model.KindDriverBinding, e.DriverBindingID, model.WrapDriverBinding)
}

// PreviousVersionSet is what was live before; null where nothing was (R15).
func (rolloutEnvironment) PreviousVersionSet(ctx context.Context, e *model.RolloutEnvironment) (*model.VersionSet, error) {
	return optional(ctx, loadersOf(ctx).versionSets, e.PreviousVersionSetID, model.WrapVersionSet)
}

// Deployments are one for each service.
func (rolloutEnvironment) Deployments(ctx context.Context, e *model.RolloutEnvironment) ([]model.Deployment, error) {
	return list(ctx, loadersOf(ctx).deploymentsOf, e.ID, model.WrapDeployment)
}

// deployment resolves those of Deployment.
type deployment struct{}

// snapshot resolves those of DeploymentSnapshot.
type snapshot struct{}

// Status is its state for people.
func (deployment) Status(ctx context.Context, d *model.Deployment) (core.RolloutStatus, error) {
	l := loadersOf(ctx)
	e, _, err := l.rolloutEnvironments.load(ctx, d.RolloutEnvironmentID)
	if err != nil {
		return "", err
	}
	r, _, err := l.rollouts.load(ctx, e.RolloutID)
	return r.StatusOf(d.State), err
}

// Service is what is deployed.
func (deployment) Service(ctx context.Context, d *model.Deployment) (model.Service, error) {
	return required(ctx, loadersOf(ctx).services, model.KindService, d.ServiceID, model.WrapService)
}

// Versions is what it is deployed in.
func (deployment) Versions(ctx context.Context, d *model.Deployment) ([]model.Version, error) {
	return list(ctx, loadersOf(ctx).versionsOfDeployment, d.ID, model.WrapVersion)
}

// Snapshot is what exactly was committed; null before (E46).
func (deployment) Snapshot(ctx context.Context, d *model.Deployment) (*model.DeploymentSnapshot, error) {
	return optional(ctx, loadersOf(ctx).snapshotOf, d.ID, model.WrapSnapshot)
}

// Earlier are what attempts before the latest had committed.
func (snapshot) Earlier(ctx context.Context, s *model.DeploymentSnapshot) ([]core.Snapshot, error) {
	return list(ctx, loadersOf(ctx).attemptsOf, s.DeploymentID, func(s core.Snapshot) core.Snapshot { return s })
}

// Link is what it is outside of Lockstep; null for nothing.
func (deployment) Link(ctx context.Context, d *model.Deployment) (*model.DeploymentLink, error) {
	return optional(ctx, loadersOf(ctx).linkOf, d.ID, model.WrapDeploymentLink)
}

// Gates are those that it has come to, in order.
func (deployment) Gates(ctx context.Context, d *model.Deployment) ([]model.DeploymentGate, error) {
	return list(ctx, loadersOf(ctx).deploymentGatesOf, d.ID, model.WrapDeploymentGate)
}

// PreviewRollout asks what a rollout would change.
func (m mutation) PreviewRollout(ctx context.Context, in model.PreviewRolloutInput) (p model.PreviewRolloutPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/versionSetId", model.KindVersionSet, in.VersionSetID)
	var made core.Preview
	if err == nil {
		made, err = m.domain.Rollouts.PreviewRollout(ctx, l.actor,
			rollout.NewPreview{
				VersionSetID: n, Rollback: in.Rollback != nil && *in.Rollback, Strategy: in.Strategy.Chosen(), Inputs: in.Inputs,
			})
		err = inField(err, "/versionSetId")
	}
	p.Preview, p.Errors, err = outcome(ctx, l.previews, made.ID, model.WrapPreview, err)
	return p, err
}

// RolloutPreview finds one by identifier; null where there is none that the viewer may see.
func (q query) RolloutPreview(ctx context.Context, global string) (*model.RolloutPreview, error) {
	n, err := number("id", model.KindRolloutPreview, global)
	if err != nil {
		return nil, err
	}
	return optional(ctx, loadersOf(ctx).previews, n, model.WrapPreview)
}

// rolloutPreview resolves the fields of RolloutPreview that are loaded.
type rolloutPreview struct{}

// VersionSet is what would be rolled out.
func (rolloutPreview) VersionSet(ctx context.Context, p *model.RolloutPreview) (model.VersionSet, error) {
	return required(ctx, loadersOf(ctx).versionSets, model.KindVersionSet, p.VersionSetID, model.WrapVersionSet)
}

// Environments are its stops, in the order of promotion.
func (rolloutPreview) Environments(_ context.Context, p *model.RolloutPreview) ([]model.PreviewedEnvironment, error) {
	return wrapAll(p.Environments, func(e core.PreviewedEnvironment) model.PreviewedEnvironment {
		return model.PreviewedEnvironment{PreviewedEnvironment: e}
	}), nil
}

// previewedEnvironment resolves those of PreviewedEnvironment.
type previewedEnvironment struct{}

// Environment is which of them it is.
func (previewedEnvironment) Environment(ctx context.Context, e *model.PreviewedEnvironment) (model.Environment, error) {
	return required(ctx, loadersOf(ctx).environments, model.KindEnvironment, e.EnvironmentID, model.WrapEnvironment)
}

// Fleets: the targets of rollouts, by wave.

// RolloutTargets is one page of the targets of an environment of a rollout.
func (q query) RolloutTargets(
	ctx context.Context, rolloutID, environment string, wave *int, state *core.TargetState, first *int, after *string, last *int,
	before *string,
) (model.RolloutTargetConnection, error) {
	p, err := page(defaultPage, first, after, last, before, nil)
	if err != nil {
		return model.RolloutTargetConnection{}, err
	}
	l := loadersOf(ctx)
	n, err := number("/rolloutId", model.KindRollout, rolloutID)
	if err != nil {
		return model.RolloutTargetConnection{}, err
	}
	at, err := environmentNumber(ctx, q.domain.View, environment)
	if err != nil {
		return model.RolloutTargetConnection{}, inField(err, "/environment")
	}
	var f core.TargetFilter
	if wave != nil {
		f.Wave = *wave
	}
	if state != nil {
		f.State = *state
	}
	stops, _, err := l.rolloutEnvironmentsOf.load(ctx, n)
	if err != nil {
		return model.RolloutTargetConnection{}, err
	}
	for _, stop := range stops {
		if stop.EnvironmentID != at {
			continue
		}
		s, err := q.domain.View.RolloutTargets(ctx, l.actor.Organization, stop.ID, f, p)
		count := func(ctx context.Context) (int, error) {
			return q.domain.View.CountRolloutTargets(ctx, l.actor.Organization, stop.ID, f)
		}
		return model.RolloutTargetConnection(model.Connect[model.RolloutTargetEdge](s, model.WrapRolloutTarget, count)), err
	}
	return model.RolloutTargetConnection{}, fault.New(fault.NotFound, "environment %q is not part of rollout %s", environment, rolloutID)
}

// Fleet is the targets of an environment; null for one of one cluster.
func (rolloutEnvironment) Fleet(ctx context.Context, e *model.RolloutEnvironment) (*model.RolloutFleet, error) {
	return optional(ctx, loadersOf(ctx).fleetsOf, e.ID, model.WrapRolloutFleet)
}

// rolloutFleet resolves the fields of RolloutFleet that are loaded.
type rolloutFleet struct{}

// Waves are in order.
func (rolloutFleet) Waves(ctx context.Context, f *model.RolloutFleet) ([]model.RolloutWave, error) {
	return list(ctx, loadersOf(ctx).wavesOf, f.RolloutEnvironmentID, model.WrapRolloutWave)
}

// PauseWave holds a wave of a fleet.
func (m mutation) PauseWave(ctx context.Context, in model.PauseWaveInput) (p model.PauseWavePayload, err error) {
	p.Rollout, p.Errors, err = m.holdWave(ctx, in, m.domain.Rollouts.PauseWave)
	return p, err
}

// ResumeWave ends the hold of a wave.
func (m mutation) ResumeWave(ctx context.Context, in model.ResumeWaveInput) (p model.ResumeWavePayload, err error) {
	p.Rollout, p.Errors, err = m.holdWave(ctx, model.PauseWaveInput(in), m.domain.Rollouts.ResumeWave)
	return p, err
}

func (m mutation) holdWave(
	ctx context.Context, in model.PauseWaveInput, hold func(context.Context, core.Actor, rollout.WaveHold) (core.Rollout, error),
) (*model.Rollout, []model.UserError, error) {
	l := loadersOf(ctx)
	n, err := number("/rolloutId", model.KindRollout, in.RolloutID)
	var environment int64
	if err == nil {
		environment, err = environmentNumber(ctx, m.domain.View, in.Environment)
		err = inField(err, "/environment")
	}
	if err == nil {
		_, err = hold(ctx, l.actor, rollout.WaveHold{RolloutID: n, EnvironmentID: environment, Wave: in.Wave, Reason: orEmpty(in.Reason)})
	}
	return outcome(ctx, l.rollouts, n, model.WrapRollout, err)
}

// SetAgentLabels sets and ends labels of an agent.
func (m mutation) SetAgentLabels(ctx context.Context, in model.SetAgentLabelsInput) (p model.AgentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/agentId", model.KindAgent, in.AgentID)
	var labels map[string]string
	if err == nil && len(in.Set) > 0 && (json.Unmarshal(in.Set, &labels) != nil || labels == nil) {
		err = fault.InvalidFields(fault.Field{Name: "/set", Problem: "found something else; expected an object of strings"})
	}
	if err == nil {
		_, err = m.domain.Access.SetAgentLabels(ctx, l.actor, n, labels, in.Unset...)
	}
	p.Agent, p.Errors, err = outcome(ctx, l.agents, n, model.WrapAgent, err)
	return p, err
}
