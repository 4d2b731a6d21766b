package access

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// firstTokenLife is how long the first token of a new organization is good: its owner makes others with it.
const firstTokenLife = 7 * 24 * time.Hour

// NewOrganization is one to be made.
type NewOrganization struct {
	Name string
	// Owner is the name of its first member, who owns it: an address, where people sign in at an identity provider.
	Owner string
}

// CreateOrganization makes an organization with its first owner, and a token of theirs, which is answered here and never again.
func (u *UseCases) CreateOrganization(
	ctx context.Context, a core.Actor, n NewOrganization,
) (made core.Organization, token string, err error) {
	found := core.CheckName("/name", n.Name)
	for _, f := range checkMemberName(n.Owner) {
		found = append(found, fault.Field{Name: "/owner", Problem: f.Problem})
	}
	if len(found) > 0 {
		return made, "", fault.InvalidFields(found...)
	}
	if err := a.May(core.ActionCreateOrganization); err != nil {
		return made, "", err
	}
	id, err := u.store.NewOrganizationID(ctx)
	if err != nil {
		return made, "", err
	}
	token = newSecret()
	var detail string
	err = u.store.InTwo(ctx, id, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddOrganization(ctx, n.Name)
		if fault.Is(err, fault.Conflict) {
			return fault.WithFields(fault.Conflict, fmt.Sprintf("an organization named %q exists already", n.Name), fault.Field{
				Name: "/name", Problem: fmt.Sprintf("%q is taken", n.Name),
			})
		}
		if err != nil {
			return err
		}
		owner, err := tx.AddMember(ctx, core.Member{Name: n.Owner, Kind: core.PrincipalUser, Role: core.RoleOwner})
		if err != nil {
			return err
		}
		first := core.AccessToken{
			MemberID: owner.ID, Name: "first token", Scopes: core.RoleOwner.Permissions(), ExpiresAt: u.clock.Now().Add(firstTokenLife),
		}
		if first, err = tx.AddToken(ctx, first, digestOf(token)); err != nil {
			return err
		}
		detail = fmt.Sprintf("owner %s, with a token for %s", n.Owner, first.Grant())
		// Members of another organization are not known here.
		return note(
			ctx, tx, provider(), core.ActionCreateOrganization, core.AccessSubject{Kind: core.AccessOrganization, ID: id, Name: n.Name}, detail,
			nil, state{"name": n.Name, "owner": n.Owner},
		)
	}, a.Organization, func(ctx context.Context, tx Tx) error {
		return note(
			ctx, tx, a, core.ActionCreateOrganization, core.AccessSubject{Kind: core.AccessOrganization, ID: id, Name: n.Name}, detail,
			nil, state{"name": n.Name, "owner": n.Owner},
		)
	})
	if err != nil {
		return core.Organization{}, "", err
	}
	return made, token, nil
}

// RenameOrganization gives an organization another name. Its number, by which everything refers to it, stays. To the name that it has is
// a no-op.
func (u *UseCases) RenameOrganization(
	ctx context.Context, a core.Actor, organization int64, name string,
) (renamed core.Organization, err error) {
	if found := core.CheckName("/name", name); len(found) > 0 {
		return renamed, fault.InvalidFields(found...)
	}
	if err := a.May(core.ActionRenameOrganization); err != nil {
		return renamed, err
	}
	var before string
	change := func(ctx context.Context, tx Tx) error {
		known, err := tx.LockOrganization(ctx)
		if err != nil {
			return err
		}
		before, renamed = known.Name, known
		if known.Name == name {
			return nil
		}
		renamed, err = tx.RenameOrganization(ctx, name)
		if fault.Is(err, fault.Conflict) {
			return fault.WithFields(fault.Conflict, fmt.Sprintf("an organization named %q exists already", name), fault.Field{
				Name: "/name", Problem: fmt.Sprintf("%q is taken", name),
			})
		}
		if err != nil || organization == a.Organization {
			return err
		}
		return note(ctx, tx, provider(), core.ActionRenameOrganization, core.AccessSubject{
			Kind: core.AccessOrganization, ID: organization, Name: name,
		}, "before "+before, state{"name": before}, state{"name": name})
	}
	err = u.store.InTwo(ctx, organization, change, a.Organization, func(ctx context.Context, tx Tx) error {
		if before == name {
			return nil
		}
		return note(ctx, tx, a, core.ActionRenameOrganization, core.AccessSubject{
			Kind: core.AccessOrganization, ID: organization, Name: name,
		}, "before "+before, state{"name": before}, state{"name": name})
	})
	if err != nil {
		return core.Organization{}, err
	}
	return renamed, nil
}

// OrganizationsFor is a page of all organizations, oldest first, for those who operate the installation.
func (u *UseCases) OrganizationsFor(ctx context.Context, a core.Actor, p core.Page) (core.Slice[core.Organization], error) {
	if err := a.May(core.ActionOrganizations); err != nil {
		return core.Slice[core.Organization]{}, err
	}
	return u.store.AllOrganizations(ctx, a.Organization, p)
}

// CountOrganizationsFor is how many there are.
func (u *UseCases) CountOrganizationsFor(ctx context.Context, a core.Actor) (int, error) {
	if err := a.May(core.ActionOrganizations); err != nil {
		return 0, err
	}
	return u.store.CountAllOrganizations(ctx, a.Organization)
}

// OrganizationsOf are those that an actor may sign in to, in order: its own, and, for a person who signs in at an identity provider, all
// where the same identity is a member.
func (u *UseCases) OrganizationsOf(ctx context.Context, a core.Actor) ([]core.Organization, error) {
	own, err := u.store.Organization(ctx, a.Organization)
	if err != nil {
		return nil, err
	}
	issuer, subject, err := u.store.IdentityOf(ctx, a.Organization, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && issuer == "" {
		return []core.Organization{own}, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := u.store.OrganizationsOfIdentity(ctx, issuer, subject)
	if !slices.ContainsFunc(all, func(o core.Organization) bool { return o.ID == own.ID }) {
		all = append(all, own)
	}
	return all, err
}
