package graph

import (
	"context"
	"strings"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/control"
)

// Control is what the API needs of package control.
type Control interface {
	ProposedChanges(ctx context.Context, organization int64, f control.Filter, p core.Page) (core.Slice[core.ProposedChange], error)
	CountProposedChanges(ctx context.Context, organization int64, f control.Filter) (int, error)
	ProposedChangesByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.ProposedChange, error)
	May(ctx context.Context, a core.Actor, p core.ProposedChange, action core.Action) error
	Confirm(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error)
	Reject(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error)
	Withdraw(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error)
	Force(ctx context.Context, a core.Actor, change int64, reason string) (core.ProposedChange, error)
}

// ProposedChanges is one page of them.
func (q query) ProposedChanges(
	ctx context.Context, open *bool, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.ProposedChangeConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.ProposedChangeConnection{}, err
	}
	f, organization := control.Filter{Open: open != nil && *open}, loadersOf(ctx).actor.Organization
	s, err := q.domain.Control.ProposedChanges(ctx, organization, f, p)
	return model.ProposedChangeConnection(model.Connect[model.ProposedChangeEdge](s, model.WrapProposedChange,
		func(ctx context.Context) (int, error) {
			return q.domain.Control.CountProposedChanges(ctx, organization, f)
		})), err
}

// proposedChange resolves those of ProposedChange.
type proposedChange struct{ domain Domain }

// State is its outcome so far.
func (proposedChange) State(ctx context.Context, p *model.ProposedChange) (model.ProposedChangeState, error) {
	return model.ProposedChangeState(strings.ToUpper(string(p.StateAt(loadersOf(ctx).clock.Now())))), nil
}

// Application is which one it concerns.
func (proposedChange) Application(ctx context.Context, p *model.ProposedChange) (*model.Application, error) {
	return optional(ctx, loadersOf(ctx).applications, p.ApplicationID, model.WrapApplication)
}

// Environments are those under change control that it concerns.
func (proposedChange) Environments(ctx context.Context, p *model.ProposedChange) ([]model.Environment, error) {
	return each(ctx, loadersOf(ctx).environments, p.Environments, model.WrapEnvironment)
}

// Proposer is who proposed it.
func (proposedChange) Proposer(ctx context.Context, p *model.ProposedChange) (*model.Member, error) {
	return optional(ctx, loadersOf(ctx).members, p.Principal.ID, model.WrapMember)
}

// Decider is who decided.
func (proposedChange) Decider(ctx context.Context, p *model.ProposedChange) (*model.Member, error) {
	return optional(ctx, loadersOf(ctx).members, p.Decider.ID, model.WrapMember)
}

// ViewerCan is about a proposed change.
func (r proposedChange) ViewerCan(ctx context.Context, p *model.ProposedChange) ([]model.Ability, error) {
	a := loadersOf(ctx).actor
	return abilities(func(action core.Action) error { return r.domain.Control.May(ctx, a, p.ProposedChange, action) },
		core.ActionConfirmChange, core.ActionRejectChange, core.ActionWithdrawChange, core.ActionForceChange)
}

// SetChangeControl decides whether changes of an environment's controls take a second person.
func (m mutation) SetChangeControl(ctx context.Context, in model.SetChangeControlInput) (p model.SetChangeControlPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/environmentId", model.KindEnvironment, in.EnvironmentID)
	if err == nil {
		_, err = m.domain.Setup.SetChangeControl(ctx, l.actor, n, in.On, orEmpty(in.Reason))
	}
	p.Environment, p.Errors, err = outcome(ctx, l.environments, n, model.WrapEnvironment, err)
	return p, err
}

// ConfirmChange makes a proposed change, as the second person.
func (m mutation) ConfirmChange(ctx context.Context, in model.DecideChangeInput) (model.ProposedChangePayload, error) {
	return decide(ctx, in, m.domain.Control.Confirm)
}

// RejectChange ends one, as another person.
func (m mutation) RejectChange(ctx context.Context, in model.DecideChangeInput) (model.ProposedChangePayload, error) {
	return decide(ctx, in, m.domain.Control.Reject)
}

// WithdrawChange ends one, as its proposer.
func (m mutation) WithdrawChange(ctx context.Context, in model.DecideChangeInput) (model.ProposedChangePayload, error) {
	return decide(ctx, in, m.domain.Control.Withdraw)
}

// ForceChange makes one without a second person.
func (m mutation) ForceChange(ctx context.Context, in model.DecideChangeInput) (model.ProposedChangePayload, error) {
	return decide(ctx, in, m.domain.Control.Force)
}

func decide(
	ctx context.Context, in model.DecideChangeInput, do func(context.Context, core.Actor, int64, string) (core.ProposedChange, error),
) (p model.ProposedChangePayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/changeId", model.KindProposedChange, in.ChangeID)
	if err == nil {
		_, err = do(ctx, l.actor, n, orEmpty(in.Reason))
		err = inField(err, "/changeId")
	}
	p.Change, p.Errors, err = outcome(ctx, l.proposedChanges, n, model.WrapProposedChange, err)
	return p, err
}
