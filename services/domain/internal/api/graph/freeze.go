package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/freeze"
)

// Freezes is one page of them.
func (q query) Freezes(
	ctx context.Context, first *int, after *string, last *int, before *string, includeOver *bool, orderBy *core.Order,
) (model.FreezeConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.FreezeConnection{}, err
	}
	l := loadersOf(ctx)
	var filter core.FreezeFilter
	if includeOver == nil || !*includeOver {
		filter.InForceAt = q.domain.View.Now()
	}
	s, err := q.domain.View.Freezes(ctx, l.actor.Organization, filter, p)
	return model.FreezeConnection(model.Connect[model.FreezeEdge](s, model.WrapFreeze, func(ctx context.Context) (int, error) {
		return q.domain.View.CountFreezes(ctx, l.actor.Organization, filter)
	})), err
}

// freezeResolver resolves the fields of Freeze that are loaded.
type freezeResolver struct{ domain Domain }

// Environments are those that it concerns.
func (freezeResolver) Environments(ctx context.Context, f *model.Freeze) ([]model.Environment, error) {
	return each(ctx, loadersOf(ctx).environments, f.EnvironmentIDs, model.WrapEnvironment)
}

// Applications are those that it concerns.
func (freezeResolver) Applications(ctx context.Context, f *model.Freeze) ([]model.Application, error) {
	return each(ctx, loadersOf(ctx).applications, f.ApplicationIDs, model.WrapApplication)
}

// InForce reports whether it stops rollouts now.
func (r freezeResolver) InForce(_ context.Context, f *model.Freeze) (bool, error) {
	return f.InForce(r.domain.View.Now()), nil
}

// StoppedRollouts is how many wait for its end.
func (freezeResolver) StoppedRollouts(ctx context.Context, f *model.Freeze) (int, error) {
	n, _, err := loadersOf(ctx).stoppedBy.load(ctx, f.ID)
	return n, err
}

// Pin keeps automation from changing what runs there.
func (environment) Pin(ctx context.Context, e *model.Environment) (*model.EnvironmentPin, error) {
	return optional(ctx, loadersOf(ctx).pinOf, e.ID, model.WrapPin)
}

// Veto is the one on a version.
func (version) Veto(ctx context.Context, v *model.Version) (*model.Veto, error) {
	return optional(ctx, loadersOf(ctx).vetoOfVersion, v.ID, model.WrapVeto)
}

// Vetoes are those on a set and on its versions.
func (versionSet) Vetoes(ctx context.Context, v *model.VersionSet) ([]model.Veto, error) {
	return list(ctx, loadersOf(ctx).vetoesOf, v.ID, model.WrapVeto)
}

// StartFreeze sets a freeze.
func (m mutation) StartFreeze(ctx context.Context, in model.StartFreezeInput) (p model.StartFreezePayload, err error) {
	n := freeze.NewFreeze{
		Tiers: in.Tiers, Rollbacks: in.Rollbacks != nil && *in.Rollbacks, Reason: in.Reason,
		Incident: orEmpty(in.Incident), EndsAt: in.EndsAt,
	}
	if in.StartsAt != nil {
		n.StartsAt = *in.StartsAt
	}
	// Before names are looked up, which would reveal what exists.
	if err = loadersOf(ctx).actor.MaySomewhere(core.ActionStartFreeze); err == nil {
		n.EnvironmentIDs, err = numbers(ctx, m.domain.View, "/environments", in.Environments, environmentNumber)
	}
	if err == nil {
		n.ApplicationIDs, err = numbers(ctx, m.domain.View, "/applications", in.Applications, applicationNumber)
	}
	if err == nil {
		n.EnvironmentLabels, err = selectorOf("/environmentLabels", in.EnvironmentLabels)
	}
	if err == nil {
		n.ApplicationLabels, err = selectorOf("/applicationLabels", in.ApplicationLabels)
	}
	var made core.Freeze
	if err == nil {
		made, err = m.domain.Freezes.StartFreeze(ctx, loadersOf(ctx).actor, n)
	}
	p.Freeze, p.Errors, err = changed(made, err, model.WrapFreeze)
	return p, err
}

// ExtendFreeze chooses a later end.
func (m mutation) ExtendFreeze(ctx context.Context, in model.ExtendFreezeInput) (p model.ExtendFreezePayload, err error) {
	n, err := number("/freezeId", model.KindFreeze, in.FreezeID)
	var made core.Freeze
	if err == nil {
		made, err = m.domain.Freezes.ExtendFreeze(ctx, loadersOf(ctx).actor, n, in.EndsAt, orEmpty(in.Reason))
	}
	p.Freeze, p.Errors, err = changed(made, inField(err, "/freezeId"), model.WrapFreeze)
	return p, err
}

// EndFreeze ends a freeze before its time.
func (m mutation) EndFreeze(ctx context.Context, in model.EndFreezeInput) (p model.EndFreezePayload, err error) {
	n, err := number("/freezeId", model.KindFreeze, in.FreezeID)
	var made core.Freeze
	if err == nil {
		made, err = m.domain.Freezes.EndFreeze(ctx, loadersOf(ctx).actor, n, orEmpty(in.Reason))
	}
	p.Freeze, p.Errors, err = changed(made, inField(err, "/freezeId"), model.WrapFreeze)
	return p, err
}

// BypassFreeze lets a rollout past freezes.
func (m mutation) BypassFreeze(ctx context.Context, in model.BypassFreezeInput) (p model.BypassFreezePayload, err error) {
	p.Rollout, p.Errors, err = apply(ctx, in.RolloutID, &in.Reason, m.domain.Rollouts.BypassFreeze)
	return p, err
}

// VetoVersion sets a veto.
func (m mutation) VetoVersion(ctx context.Context, in model.VetoVersionInput) (p model.VetoVersionPayload, err error) {
	n := freeze.NewVeto{Reason: in.Reason}
	if in.VersionID != nil {
		n.VersionID, err = number("/versionId", model.KindVersion, *in.VersionID)
	}
	if in.VersionSetID != nil && err == nil {
		n.VersionSetID, err = number("/versionSetId", model.KindVersionSet, *in.VersionSetID)
	}
	var made core.Veto
	if err == nil {
		made, err = m.domain.Freezes.VetoVersion(ctx, loadersOf(ctx).actor, n)
	}
	p.Veto, p.Errors, err = changed(made, err, model.WrapVeto)
	return p, err
}

// LiftVeto ends a veto.
func (m mutation) LiftVeto(ctx context.Context, in model.LiftVetoInput) (p model.LiftVetoPayload, err error) {
	n, err := number("/vetoId", model.KindVeto, in.VetoID)
	var made core.Veto
	if err == nil {
		made, err = m.domain.Freezes.LiftVeto(ctx, loadersOf(ctx).actor, n, in.Reason)
	}
	p.Veto, p.Errors, err = changed(made, inField(err, "/vetoId"), model.WrapVeto)
	return p, err
}

// PinEnvironment keeps automation from changing what runs in an environment.
func (m mutation) PinEnvironment(ctx context.Context, in model.PinEnvironmentInput) (p model.PinEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Freezes.PinEnvironment(ctx, l.actor, n, in.Reason)
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, inField(err, "/environmentId"))
	return p, err
}

// UnpinEnvironment ends that.
func (m mutation) UnpinEnvironment(ctx context.Context, in model.UnpinEnvironmentInput) (p model.UnpinEnvironmentPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Freezes.UnpinEnvironment(ctx, l.actor, n, orEmpty(in.Reason))
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, inField(err, "/environmentId"))
	return p, err
}

// changed is what a payload says of what a use case answered: the object, or what the caller has to mend.
func changed[V, M any](made V, err error, wrap func(V) M) (*M, []model.UserError, error) {
	if err != nil {
		mend, err := userErrors(err)
		return nil, mend, err
	}
	object := wrap(made)
	return &object, []model.UserError{}, nil
}
