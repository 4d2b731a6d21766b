package access

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Identity is what an identity provider asserts about a person.
type Identity struct {
	// Issuer and Subject are what never changes hands; Name may.
	Issuer, Subject string
	// Name is what the member is called here: an address, say.
	Name string
	// NameIsVerified reports whether the provider vouches that the name is this person's. Only then a member who was added under
	// that name beforehand is taken to be the same.
	NameIsVerified bool
	// Email is the address that the provider vouches for; empty for none.
	Email string
	// Roles are those that the person's groups give, by organization. Empty where no group gives one.
	Roles map[int64]core.Role
	// GroupsDecide reports whether groups give roles at all. Where they do, a person in none of them has no access; where they
	// do not, roles are those that were given here.
	GroupsDecide bool
	// Session is the provider's name of its own session, by which it may end ours; empty where it has none.
	Session string
}

// StartIdentitySession gives a browser a session for a person whom an identity provider has authenticated, in an organization, or, for 0,
// in the first of those where they have access. A member is made at the first sign-in and has the role of its groups from each sign-in on;
// where groups no longer give one, its sessions end. Groups, which an operator configures, make members of all their organizations. A name
// that an organization's owner has added makes a member of that organization alone, and only when it is chosen or the identity is a member
// of none: otherwise an owner elsewhere could decide where a person signs in. Denied, with the reason, for those without access.
func (u *UseCases) StartIdentitySession(ctx context.Context, organization int64, id Identity) (session string, until time.Time, err error) {
	if found := checkMemberName(id.Name); len(found) > 0 {
		return "", until, fault.InvalidFields(found...)
	}
	homes, err := u.homes(ctx, id)
	if err != nil {
		return "", until, err
	}
	if err := u.leave(ctx, id); err != nil {
		return "", until, err
	}
	if organization == 0 {
		organization = core.OperatorOrganization // where nobody has access, the reason is that of the first one
		if len(homes) > 0 {
			organization = homes[0]
		}
	}
	if id.GroupsDecide && id.Roles[organization] == "" {
		return "", until, fault.New(
			fault.Denied, "%s is in no group that has a role in organization %d; ask an administrator of Lockstep or of the groups", id.Name,
			organization,
		)
	}
	for _, other := range homes {
		if other == organization {
			continue
		}
		// So that it can be chosen there, and so that no organization keeps an address that the provider does not vouch for any longer. Who was
		// turned away in another organization is none of this one's business.
		if err := u.join(ctx, other, id); err != nil && !fault.Is(err, fault.Denied) && !fault.Is(err, fault.Refused) {
			return "", until, err
		}
	}
	until, session = u.clock.Now().Add(u.identitySessionLife), newSecret()
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		m, err := u.present(ctx, tx, organization, id)
		if err != nil {
			return err
		}
		return signIn(
			ctx, tx, core.AccessToken{MemberID: m.ID, Name: "sign-in at " + id.Issuer, ExpiresAt: until, ProviderSession: id.Session}, session,
		)
	})
	return session, until, err
}

// join makes sure of a membership without a session.
func (u *UseCases) join(ctx context.Context, organization int64, id Identity) error {
	return u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		_, err := u.present(ctx, tx, organization, id)
		return err
	})
}

// present is the member of an identity, who is reached at the address of this sign-in from now on.
func (u *UseCases) present(ctx context.Context, tx Tx, organization int64, id Identity) (core.Member, error) {
	m, err := identified(ctx, tx, organization, id)
	if err != nil {
		return m, err
	}
	return m, tx.SetMemberAddress(ctx, m.ID, id.Email, u.clock.Now())
}

// homes are the organizations where an identity signs in without choosing, in order: those of its groups, or those where it is a member;
// where it is a member of none, those that have added its name.
func (u *UseCases) homes(ctx context.Context, id Identity) ([]int64, error) {
	var all []int64
	if id.GroupsDecide {
		for organization := range id.Roles {
			// What is configured may not have been made yet.
			if _, err := u.store.Organization(ctx, organization); fault.Is(err, fault.NotFound) {
				continue
			} else if err != nil {
				return nil, err
			}
			all = append(all, organization)
		}
		slices.Sort(all)
		return all, nil
	}
	known, err := u.store.OrganizationsOfIdentity(ctx, id.Issuer, id.Subject)
	if err != nil {
		return nil, err
	}
	for _, o := range known {
		all = append(all, o.ID)
	}
	if len(all) == 0 && id.NameIsVerified {
		named, err := u.store.OrganizationsWithMember(ctx, id.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, named...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// leave ends the sessions of an identity wherever its groups no longer give a role, and has it receive nothing more there.
func (u *UseCases) leave(ctx context.Context, id Identity) error {
	if !id.GroupsDecide {
		return nil
	}
	known, err := u.store.OrganizationsOfIdentity(ctx, id.Issuer, id.Subject)
	for _, o := range known {
		if id.Roles[o.ID] == "" && err == nil {
			err = u.store.In(ctx, o.ID, func(ctx context.Context, tx Tx) error { return tx.ForgetMemberAddress(ctx, id.Issuer, id.Subject) })
		}
		if id.Roles[o.ID] == "" && err == nil {
			err = u.endSignIns(ctx, o.ID, id.Issuer, id.Subject, "")
		}
	}
	return err
}

// EndProviderSession ends what began with a session at an identity provider, in every organization: all sessions of a subject, or those of
// one session there, or both narrowed down to each other. Again is a no-op, and so is what nobody knows.
func (u *UseCases) EndProviderSession(ctx context.Context, issuer, subject, session string) error {
	var all []int64
	var err error
	switch {
	case subject != "":
		var known []core.Organization
		known, err = u.store.OrganizationsOfIdentity(ctx, issuer, subject)
		for _, o := range known {
			all = append(all, o.ID)
		}
	case session != "":
		all, err = u.store.OrganizationsWithProviderSession(ctx, session)
	default:
		return fault.New(fault.Invalid, "found neither a subject nor a session; expected one of them")
	}
	for _, organization := range all {
		if err == nil {
			err = u.endSignIns(ctx, organization, issuer, subject, session)
		}
	}
	return err
}

func (u *UseCases) endSignIns(ctx context.Context, organization int64, issuer, subject, session string) error {
	return u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		return tx.RevokeSignIns(ctx, SignIns{Issuer: issuer, Subject: subject, Session: session}, u.clock.Now())
	})
}

// SignIns are those of an identity provider's subject, or of one session there; an empty field is any.
type SignIns struct{ Issuer, Subject, Session string }

// provider is who the log names for what a sign-in has changed: nobody here.
func provider() core.Actor { return core.Actor{Type: core.PrincipalSystem} }

// identified is the member of an identity, with the role that its groups give it.
func identified(ctx context.Context, tx Tx, organization int64, id Identity) (core.Member, error) {
	m, err := tx.MemberByIdentity(ctx, id.Issuer, id.Subject)
	removed := err == nil && m.RemovedAt != nil
	switch {
	case fault.Is(err, fault.NotFound), removed:
		if m, err = introduced(ctx, tx, organization, id, !removed); err != nil {
			return core.Member{}, err
		}
	case err != nil:
		return core.Member{}, err
	}
	role := id.Roles[organization]
	if !id.GroupsDecide || m.Role == role {
		return m, nil
	}
	before := m.Role
	changed, err := changeOne(ctx, tx, m.ID, func(m *core.Member) { m.Role = role })
	if err != nil {
		return core.Member{}, err
	}
	return changed, note(ctx, tx, provider(), core.ActionSetMemberRole, core.AccessSubject{
		Kind: core.AccessMember, ID: changed.ID, Name: changed.Name,
	}, fmt.Sprintf("%s, before %s, by groups at %s", role, before, id.Issuer), state{"role": before}, state{"role": role})
}

// introduced is the member for an identity that signs in for the first time: the one that was added under its name, or a new one.
// None is made for a removed member: the name has to be added again.
func introduced(ctx context.Context, tx Tx, organization int64, id Identity, mayMake bool) (core.Member, error) {
	role := id.Roles[organization]
	m, err := tx.MemberByName(ctx, organization, id.Name)
	switch {
	case err == nil && !id.NameIsVerified:
		return core.Member{}, fault.New(
			fault.Denied, "a member named %s exists already, and the identity provider does not vouch that the name is yours", id.Name,
		)
	case err == nil:
	case !fault.Is(err, fault.NotFound):
		return core.Member{}, err
	case role == "" || !mayMake:
		return core.Member{}, fault.New(fault.Denied, "%s is no member of the organization; an owner can add that name", id.Name)
	default:
		if m, err = tx.AddMember(ctx, core.Member{Name: id.Name, Kind: core.PrincipalUser, Role: role}); err != nil {
			return core.Member{}, err
		}
		subject := core.AccessSubject{Kind: core.AccessMember, ID: m.ID, Name: m.Name}
		err = note(
			ctx, tx, provider(), core.ActionCreateMember, subject, fmt.Sprintf("%s, signed in at %s", role, id.Issuer),
			nil, state{"name": m.Name, "kind": m.Kind, "role": role},
		)
		if err != nil {
			return core.Member{}, err
		}
	}
	err = tx.SetMemberIdentity(ctx, m.ID, id.Issuer, id.Subject)
	if fault.Is(err, fault.NotFound) {
		return core.Member{}, fault.Because(err, fault.Denied, "the member named %s is another person at the identity provider", id.Name)
	}
	return m, err
}
