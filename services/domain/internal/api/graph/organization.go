package graph

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
)

// Organizations, for those who operate the installation, and those that a viewer may choose among.

// Organizations is one page of all.
func (q query) Organizations(
	ctx context.Context, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.OrganizationConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.OrganizationConnection{}, err
	}
	actor := loadersOf(ctx).actor
	s, err := q.domain.Access.OrganizationsFor(ctx, actor, p)
	return model.OrganizationConnection(model.Connect[model.OrganizationEdge](s, model.WrapOrganization,
		func(ctx context.Context) (int, error) {
			return q.domain.Access.CountOrganizationsFor(ctx, actor)
		})), err
}

// Organizations are those that the viewer may sign in to.
func (v viewer) Organizations(ctx context.Context, _ *model.Viewer) ([]model.Organization, error) {
	found, err := v.domain.Access.OrganizationsOf(ctx, loadersOf(ctx).actor)
	all := make([]model.Organization, len(found))
	for i, o := range found {
		all[i] = model.WrapOrganization(o)
	}
	return all, err
}

// CreateOrganization makes one, with a token for its owner, which is shown this once.
func (m mutation) CreateOrganization(ctx context.Context, in model.CreateOrganizationInput) (p model.CreateOrganizationPayload, err error) {
	made, token, err := m.domain.Access.CreateOrganization(ctx, loadersOf(ctx).actor, access.NewOrganization{Name: in.Name, Owner: in.Owner})
	if p.Organization, p.Errors, err = organizationOutcome(made, err); p.Organization != nil {
		p.Token = &token
	}
	return p, err
}

// RenameOrganization gives one another name.
func (m mutation) RenameOrganization(ctx context.Context, in model.RenameOrganizationInput) (p model.OrganizationPayload, err error) {
	n, err := number("/organizationId", model.KindOrganization, in.OrganizationID)
	var renamed core.Organization
	if err == nil {
		renamed, err = m.domain.Access.RenameOrganization(ctx, loadersOf(ctx).actor, n, in.Name)
		err = inField(err, "/organizationId")
	}
	p.Organization, p.Errors, err = organizationOutcome(renamed, err)
	return p, err
}

// organizationOutcome is what a payload says. An organization is not read again: another one than the viewer's cannot be.
func organizationOutcome(o core.Organization, err error) (*model.Organization, []model.UserError, error) {
	if err != nil {
		mend, err := userErrors(err)
		return nil, mend, err
	}
	wrapped := model.WrapOrganization(o)
	return &wrapped, []model.UserError{}, nil
}
