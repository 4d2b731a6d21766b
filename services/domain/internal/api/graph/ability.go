package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// viewerCan: what the viewer may do now. The rules are the core's, and those that its use cases refuse by; here is only
// which actions each kind of object has.

// abilities asks about each action. Only a deliberate refusal becomes a reason; any other error is the request's.
func abilities(may func(core.Action) error, actions ...core.Action) ([]model.Ability, error) {
	all := make([]model.Ability, len(actions))
	for i, action := range actions {
		all[i] = model.Ability{Action: string(action), Allowed: true}
		err := may(action)
		switch fault.ClassOf(err) {
		case fault.Denied, fault.Refused, fault.Invalid:
			reason := fault.Public(err)
			all[i].Allowed, all[i].Reason = false, &reason
		default:
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// viewer resolves the fields of Viewer that are decided.
type viewer struct{ domain Domain }

// ViewerCan is about the organization as a whole.
func (viewer) ViewerCan(ctx context.Context, _ *model.Viewer) ([]model.Ability, error) {
	a := loadersOf(ctx).actor
	return abilities(func(action core.Action) error {
		if action == core.ActionCreateEnvironment { // in some tier is enough to begin with
			return a.MaySomewhere(action)
		}
		return a.May(action)
	}, core.ActionCreateApplication, core.ActionCreateEnvironment,
		core.ActionCreateMember, core.ActionSetMemberRole, core.ActionRemoveMember, core.ActionGrantPermissions, core.ActionRevokeGrant,
		core.ActionCreateGroup, core.ActionSetGroupMembers,
		core.ActionCreateToken, core.ActionRevokeToken,
		core.ActionRegisterAgent, core.ActionAccessChanges, core.ActionCreateOrganization, core.ActionRenameOrganization)
}

// ViewerCan is about an application.
func (application) ViewerCan(ctx context.Context, a *model.Application) ([]model.Ability, error) {
	l := loadersOf(ctx)
	s, _, err := l.applicationStandings.load(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	return abilities(func(action core.Action) error { return s.May(l.actor, action) },
		core.ActionCreateRollout, core.ActionCreateFlowDefinition, core.ActionSetRollbackPolicy, core.ActionSetRolloutPolicy,
		core.ActionArchiveApplication, core.ActionRestoreApplication, core.ActionSetLabels, core.ActionSetDetails, core.ActionRenameApplication,
		core.ActionRenameService)
}

// ViewerCan is about an environment.
func (environment) ViewerCan(ctx context.Context, e *model.Environment) ([]model.Ability, error) {
	l := loadersOf(ctx)
	s, _, err := l.environmentStandings.load(ctx, e.ID)
	if err != nil {
		return nil, err
	}
	return abilities(func(action core.Action) error { return s.May(l.actor, action) },
		core.ActionUpdateEnvironment, core.ActionRetryOnboarding, core.ActionSetEnvironmentApproval, core.ActionSetEnvironmentChecks,
		core.ActionSetDirectChanges, core.ActionSetChangeControl,
		core.ActionArchiveEnvironment, core.ActionRestoreEnvironment, core.ActionSetLabels, core.ActionSetDetails, core.ActionRenameEnvironment)
}

// ViewerCan is about an application in an environment.
func (applicationEnvironment) ViewerCan(ctx context.Context, ae *model.ApplicationEnvironment) ([]model.Ability, error) {
	l := loadersOf(ctx)
	e, _, err := l.environments.load(ctx, ae.EnvironmentID)
	if err != nil {
		return nil, err
	}
	return abilities(func(action core.Action) error { return l.actor.MayIn(action, e.Target(ae.ApplicationID)) }, core.ActionRetrySetup)
}

// ViewerCan is about a rollout.
func (rolloutResolver) ViewerCan(ctx context.Context, r *model.Rollout) ([]model.Ability, error) {
	l := loadersOf(ctx)
	s, _, err := l.standings.load(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return abilities(func(action core.Action) error { return s.May(l.actor, action) },
		core.ActionPauseRollout, core.ActionResumeRollout, core.ActionAbortRollout, core.ActionRetryRollout, core.ActionCancelRollout,
		core.ActionRollbackRollout, core.ActionPauseWave, core.ActionResumeWave,
		core.ActionApproveGate, core.ActionRejectGate, core.ActionBreakGlass, core.ActionBypassFreeze, core.ActionStopRollback)
}

// WaitingOn is every condition that it needs and does not have.
func (rolloutResolver) WaitingOn(ctx context.Context, r *model.Rollout) ([]model.Wait, error) {
	return list(ctx, loadersOf(ctx).waitsOf, r.ID, model.WrapWait)
}

// gate resolves the fields of Gate that are loaded.
type gate struct{}

// ViewerCan is about a gate.
func (gate) ViewerCan(ctx context.Context, g *model.Gate) ([]model.Ability, error) {
	l := loadersOf(ctx)
	s, _, err := l.standings.load(ctx, g.RolloutID)
	if err != nil {
		return nil, err
	}
	return abilities(func(action core.Action) error { return s.MayResolve(l.actor, action, g.GateID) }, core.ActionApproveGate,
		core.ActionRejectGate)
}

// wait resolves those of Wait.
type wait struct{}

// Environment is which of them it is in; null for the whole rollout.
func (wait) Environment(ctx context.Context, w *model.Wait) (*model.Environment, error) {
	return optional(ctx, loadersOf(ctx).environments, w.EnvironmentID, model.WrapEnvironment)
}

// maxApprovers is how many members who can approve are listed at most.
const maxApprovers = 100

// Approvers are the first members who can still approve.
func (wait) Approvers(ctx context.Context, w *model.Wait, first *int) ([]model.Member, error) {
	n := 20
	if first != nil {
		n = min(max(*first, 0), maxApprovers)
	}
	return each(ctx, loadersOf(ctx).members, w.Approvers[:min(n, len(w.Approvers))], model.WrapMember)
}

// Service is which of them it is about; null for the whole rollout.
func (wait) Service(ctx context.Context, w *model.Wait) (*model.Service, error) {
	return optional(ctx, loadersOf(ctx).services, w.ServiceID, model.WrapService)
}
