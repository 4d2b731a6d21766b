package core

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Identity is who an identity provider says that somebody is.
type Identity struct {
	// Issuer and Subject are what never changes hands; Name may.
	Issuer, Subject string
	// Name is what the member is called here: an address, say.
	Name string
	// NameIsVerified is whether the provider vouches that the name is this person's. Only then somebody who was added under
	// that name beforehand is taken to be the same.
	NameIsVerified bool
	// Role is what the groups there make of somebody. Empty where no group gives one.
	Role Role
	// GroupsDecide is whether groups give roles at all. Where they do, whoever is in none of them has no access; where they
	// do not, roles are those that were given here.
	GroupsDecide bool
}

// StartIdentitySession gives a browser a session for somebody whom an identity provider has vouched for. A member is made at the
// first sign-in, and has the role of its groups from each sign-in on. Denied, with the reason, for those without access.
func (d *Domain) StartIdentitySession(ctx context.Context, organization int64, id Identity) (session string, until time.Time, err error) {
	if found := checkMemberName(id.Name); len(found) > 0 {
		return "", until, fault.InvalidFields(found...)
	}
	if id.GroupsDecide && id.Role == "" {
		return "", until, fault.New(fault.Denied, "%s is in no group that has a role here; ask whoever administers Lockstep, or the groups", id.Name)
	}
	until = d.clock.Now().Add(SessionLife)
	err = d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		m, err := identified(ctx, tx, organization, id)
		if err != nil {
			return err
		}
		// The token that the session belongs to is nobody's secret: it is there to be seen among the member's tokens, and to be
		// revoked, which ends the session.
		all := RoleOwner.Permissions()
		parent, err := tx.AddToken(ctx, AccessToken{MemberID: m.ID, Name: "sign-in at " + id.Issuer, Scopes: all, ExpiresAt: until}, digestOf(newSecret()))
		if err != nil {
			return err
		}
		session = newSecret()
		_, err = tx.AddToken(ctx, AccessToken{MemberID: m.ID, ParentID: parent.ID, Name: "session", Scopes: all, ExpiresAt: until}, digestOf(session))
		return err
	})
	return session, until, err
}

// provider is who the log names for what a sign-in has changed: nobody here.
func provider() Actor { return Actor{Type: PrincipalSystem} }

// identified is the member of an identity, with the role that its groups give it.
func identified(ctx context.Context, tx Tx, organization int64, id Identity) (Member, error) {
	m, err := tx.MemberByIdentity(ctx, id.Issuer, id.Subject)
	removed := err == nil && m.RemovedAt != nil
	switch {
	case fault.Is(err, fault.NotFound), removed:
		if m, err = introduced(ctx, tx, organization, id, !removed); err != nil {
			return Member{}, err
		}
	case err != nil:
		return Member{}, err
	}
	if !id.GroupsDecide || m.Role == id.Role {
		return m, nil
	}
	before := m.Role
	changed, err := changeOne(ctx, tx, m.ID, func(m *Member) { m.Role = id.Role })
	if err != nil {
		return Member{}, err
	}
	return changed, provider().note(ctx, tx, ActionSetMemberRole, AccessSubject{AccessMember, changed.ID, changed.Name}, fmt.Sprintf("%s, before %s, by groups at %s", id.Role, before, id.Issuer))
}

// introduced is the member for an identity that signs in for the first time: the one that was added under its name, or a new one.
// For whoever was removed none is made: somebody has to add the name again.
func introduced(ctx context.Context, tx Tx, organization int64, id Identity, mayMake bool) (Member, error) {
	m, err := tx.MemberByName(ctx, organization, id.Name)
	switch {
	case err == nil && !id.NameIsVerified:
		return Member{}, fault.New(fault.Denied, "a member named %s exists already, and the identity provider does not vouch that the name is yours", id.Name)
	case err == nil:
	case !fault.Is(err, fault.NotFound):
		return Member{}, err
	case id.Role == "" || !mayMake:
		return Member{}, fault.New(fault.Denied, "%s is no member of the organization; an owner can add that name", id.Name)
	default:
		if m, err = tx.AddMember(ctx, Member{Name: id.Name, Kind: PrincipalUser, Role: id.Role}); err != nil {
			return Member{}, err
		}
		if err = provider().note(ctx, tx, ActionCreateMember, AccessSubject{AccessMember, m.ID, m.Name}, fmt.Sprintf("%s, signed in at %s", id.Role, id.Issuer)); err != nil {
			return Member{}, err
		}
	}
	err = tx.SetMemberIdentity(ctx, m.ID, id.Issuer, id.Subject)
	if fault.Is(err, fault.NotFound) {
		return Member{}, fault.Because(err, fault.Denied, "the member named %s is somebody else at the identity provider", id.Name)
	}
	return m, err
}
