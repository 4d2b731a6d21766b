package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// OperatorOrganization is the first organization, which is there from the start. Its owners operate the installation: they make, list and
// rename organizations. They see nothing of what is in another one, and cannot sign in to it unless somebody there makes them a member.
const OperatorOrganization = 1

// firstTokenLife is how long the first token of a new organization is good: its owner makes others with it.
const firstTokenLife = 7 * 24 * time.Hour

// NewOrganization is one to be made.
type NewOrganization struct {
	Name string
	// Owner is the name of its first member, who owns it: an address, where people sign in at an identity provider.
	Owner string
}

// CreateOrganization makes an organization with its first owner, and a token of theirs, which is answered here and never again.
func (d *Domain) CreateOrganization(ctx context.Context, a Actor, n NewOrganization) (made Organization, token string, err error) {
	found := checkName("/name", n.Name)
	for _, f := range checkMemberName(n.Owner) {
		found = append(found, fault.Field{Name: "/owner", Problem: f.Problem})
	}
	if len(found) > 0 {
		return made, "", fault.InvalidFields(found...)
	}
	if err := a.May(ActionCreateOrganization); err != nil {
		return made, "", err
	}
	id, err := d.store.NewOrganizationID(ctx)
	if err != nil {
		return made, "", err
	}
	token = newSecret()
	var detail string
	err = d.store.InTwo(ctx, id, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddOrganization(ctx, n.Name)
		if fault.Is(err, fault.Conflict) {
			return fault.WithFields(fault.Conflict, fmt.Sprintf("an organization named %q exists already", n.Name), fault.Field{Name: "/name", Problem: fmt.Sprintf("%q is taken", n.Name)})
		}
		if err != nil {
			return err
		}
		owner, err := tx.AddMember(ctx, Member{Name: n.Owner, Kind: PrincipalUser, Role: RoleOwner})
		if err != nil {
			return err
		}
		first := AccessToken{MemberID: owner.ID, Name: "first token", Scopes: RoleOwner.Permissions(), ExpiresAt: d.clock.Now().Add(firstTokenLife)}
		if first, err = tx.AddToken(ctx, first, digestOf(token)); err != nil {
			return err
		}
		detail = fmt.Sprintf("owner %s, with a token for %s", n.Owner, first.grant())
		// Members of another organization are not known here.
		return provider().note(ctx, tx, ActionCreateOrganization, AccessSubject{AccessOrganization, id, n.Name}, detail)
	}, a.Organization, func(ctx context.Context, tx Tx) error {
		return a.note(ctx, tx, ActionCreateOrganization, AccessSubject{AccessOrganization, id, n.Name}, detail)
	})
	if err != nil {
		return Organization{}, "", err
	}
	return made, token, nil
}

// RenameOrganization gives an organization another name. Its number, by which everything refers to it, stays. To the name that it has is
// a no-op.
func (d *Domain) RenameOrganization(ctx context.Context, a Actor, organization int64, name string) (renamed Organization, err error) {
	if found := checkName("/name", name); len(found) > 0 {
		return renamed, fault.InvalidFields(found...)
	}
	if err := a.May(ActionRenameOrganization); err != nil {
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
			return fault.WithFields(fault.Conflict, fmt.Sprintf("an organization named %q exists already", name), fault.Field{Name: "/name", Problem: fmt.Sprintf("%q is taken", name)})
		}
		if err != nil || organization == a.Organization {
			return err
		}
		return provider().note(ctx, tx, ActionRenameOrganization, AccessSubject{AccessOrganization, organization, name}, "before "+before)
	}
	err = d.store.InTwo(ctx, organization, change, a.Organization, func(ctx context.Context, tx Tx) error {
		if before == name {
			return nil
		}
		return a.note(ctx, tx, ActionRenameOrganization, AccessSubject{AccessOrganization, organization, name}, "before "+before)
	})
	if err != nil {
		return Organization{}, err
	}
	return renamed, nil
}

// OrganizationsFor is a page of all organizations, oldest first, for those who operate the installation.
func (d *Domain) OrganizationsFor(ctx context.Context, a Actor, p Page) (Slice[Organization], error) {
	if err := a.May(ActionOrganizations); err != nil {
		return Slice[Organization]{}, err
	}
	return d.store.AllOrganizations(ctx, a.Organization, p)
}

// CountOrganizationsFor is how many there are.
func (d *Domain) CountOrganizationsFor(ctx context.Context, a Actor) (int, error) {
	if err := a.May(ActionOrganizations); err != nil {
		return 0, err
	}
	return d.store.CountAllOrganizations(ctx, a.Organization)
}

// OrganizationsOf are those that an actor may sign in to, in order: its own, and, for somebody who signs in at an identity provider, all
// where the same identity is a member.
func (d *Domain) OrganizationsOf(ctx context.Context, a Actor) ([]Organization, error) {
	own, err := d.Organization(ctx, a.Organization)
	if err != nil {
		return nil, err
	}
	issuer, subject, err := d.IdentityOf(ctx, a.Organization, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && issuer == "" {
		return []Organization{own}, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := d.store.OrganizationsOfIdentity(ctx, issuer, subject)
	if !slices.ContainsFunc(all, func(o Organization) bool { return o.ID == own.ID }) {
		all = append(all, own)
	}
	return all, err
}
