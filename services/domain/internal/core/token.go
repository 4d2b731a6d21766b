package core

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// NewToken is one to be made.
type NewToken struct {
	// MemberID is whose; 0 for the actor's own.
	MemberID int64
	// Name tells its holder's tokens apart.
	Name string
	// Scopes are what it is good for; 0 for all that the actor may do but break-glass, which has to be asked for. Reading always belongs to it.
	Scopes Permissions
	// Lifetime is how long it is good; 0 for 90 days.
	Lifetime time.Duration
}

const (
	defaultTokenLife = 90 * 24 * time.Hour
	maxTokenLife     = 366 * 24 * time.Hour
	// SessionLife is how long a browser stays signed in, unless Deps says otherwise.
	SessionLife = 12 * time.Hour
	// IdentitySessionLife is the same for sign-ins at an identity provider: nobody tells this service that somebody has left there, unless
	// the provider supports back-channel logout, so it has to ask again.
	IdentitySessionLife = time.Hour
	// tokenPrefix lets people, and scanners for secrets, see what it is.
	tokenPrefix = "lockstep_"
)

// CreateToken makes a token, which is answered here and never again. Everybody makes their own; those who administer,
// also for others. It never allows more than the actor may.
func (d *Domain) CreateToken(ctx context.Context, a Actor, n NewToken) (AccessToken, string, error) {
	if n.MemberID == 0 {
		n.MemberID = a.ID
	}
	if n.Scopes == 0 {
		n.Scopes = a.Permissions &^ PermissionsOf(MayBreakGlass)
	}
	n.Scopes |= PermissionsOf(MayRead)
	if n.Lifetime == 0 {
		n.Lifetime = defaultTokenLife
	}
	if err := n.check(); err != nil {
		return AccessToken{}, "", err
	}
	secret := newSecret()
	var made AccessToken
	err := d.by(ctx, a, ActionCreateToken, func(ctx context.Context, tx Tx) error {
		if beyond := n.Scopes &^ a.Permissions; beyond != 0 {
			return fault.New(fault.Denied, "a token cannot be good for what its maker may not do: %v", beyond.List())
		}
		members, err := tx.MembersByID(ctx, a.Organization, []int64{n.MemberID})
		if err != nil {
			return err
		}
		m, ok := members[n.MemberID]
		if !ok || m.RemovedAt != nil {
			return fault.New(fault.NotFound, "member %d does not exist", n.MemberID)
		}
		if err := a.mayHandle(n.MemberID); err != nil {
			return err
		}
		made, err = tx.AddToken(ctx, AccessToken{MemberID: n.MemberID, Name: n.Name, Scopes: n.Scopes, ExpiresAt: d.clock.Now().Add(n.Lifetime)}, digestOf(secret))
		if err != nil {
			return err
		}
		return a.note(ctx, tx, ActionCreateToken, AccessSubject{AccessOfToken, made.ID, made.Name}, fmt.Sprintf("of %s: %s", m.Name, made.grant()))
	})
	return made, secret, err
}

func (n NewToken) check() error {
	var found []fault.Field
	if n.Name == "" || len(n.Name) > 100 {
		found = append(found, fault.Field{Name: "/name", Problem: fmt.Sprintf("found %d bytes; expected 1 to 100, that tell what it is for", len(n.Name))})
	}
	if n.Lifetime < time.Minute || n.Lifetime > maxTokenLife {
		found = append(found, fault.Field{Name: "/lifetimeSeconds", Problem: fmt.Sprintf("found %.0f; expected 60 to %.0f", n.Lifetime.Seconds(), maxTokenLife.Seconds())})
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// mayHandle is nil when an actor may see, make and revoke the tokens of a member: its own, or as one who administers.
func (a Actor) mayHandle(member int64) error {
	if a.ID == member || a.Permissions.Has(MayAdminister) {
		return nil
	}
	return fault.New(fault.Denied, "the tokens of others are for those with the permission %q", MayAdminister)
}

// RevokeToken ends a token, and every session that began with it. Again is nothing.
func (d *Domain) RevokeToken(ctx context.Context, a Actor, token int64) (AccessToken, error) {
	var revoked AccessToken
	err := d.by(ctx, a, ActionRevokeToken, func(ctx context.Context, tx Tx) error {
		known, err := tx.TokensByID(ctx, a.Organization, []int64{token})
		if err != nil {
			return err
		}
		t, ok := known[token]
		// Somebody else's is not there for those who may not handle it: its number tells nothing.
		if !ok || a.mayHandle(t.MemberID) != nil {
			return fault.New(fault.NotFound, "token %d does not exist", token)
		}
		if err := tx.RevokeTokens(ctx, token, d.clock.Now()); err != nil {
			return err
		}
		again, err := tx.TokensByID(ctx, a.Organization, []int64{token})
		if err != nil {
			return err
		}
		revoked = again[token]
		if t.RevokedAt != nil { // again is nothing, and no news
			return nil
		}
		return a.note(ctx, tx, ActionRevokeToken, AccessSubject{AccessOfToken, token, t.Name}, fmt.Sprintf("of member %d: %s", t.MemberID, t.grant()))
	})
	return revoked, err
}

// VisibleTokens are those of members that an actor may see; no key for the others.
func (d *Domain) VisibleTokens(ctx context.Context, a Actor, members []int64) (map[int64][]AccessToken, error) {
	seen := slices.DeleteFunc(slices.Clone(members), func(m int64) bool { return a.mayHandle(m) != nil })
	return d.TokensByMember(ctx, a.Organization, seen)
}

// Authenticate finds out who shows a token: Unauthenticated where it is none, or not good any more. A session's secret is
// good in a browser's cookie alone, and a token nowhere but as one.
func (d *Domain) Authenticate(ctx context.Context, secret string, session bool) (Actor, error) {
	_, a, err := d.holder(ctx, secret, session)
	return a, err
}

// holder is a good token, and who holds it. Nothing is kept in memory: a token that is revoked is good for nothing at once.
func (d *Domain) holder(ctx context.Context, secret string, session bool) (AccessToken, Actor, error) {
	unknown := fault.New(fault.Unauthenticated, "invalid or expired token")
	digest, now := digestOf(secret), d.clock.Now()
	organizations, err := d.store.OrganizationsWithToken(ctx, digest)
	if err != nil {
		return AccessToken{}, Actor{}, err
	}
	if len(organizations) == 0 {
		return AccessToken{}, Actor{}, unknown
	}
	organization := organizations[0] // so many random bits are nobody else's
	var token AccessToken
	var member Member
	var groups map[int64][]Group
	err = d.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		var err error
		if token, member, err = tx.TokenByDigest(ctx, digest, now); err != nil {
			return err
		}
		if groups, err = tx.GroupsByMember(ctx, organization, []int64{member.ID}); err != nil {
			return err
		}
		return tx.TouchToken(ctx, token.ID, now)
	})
	if fault.Is(err, fault.NotFound) || err == nil && (token.ParentID != 0) != session {
		return AccessToken{}, Actor{}, unknown
	}
	if err != nil {
		return AccessToken{}, Actor{}, err
	}
	a := Actor{Organization: organization, Type: member.Kind, ID: member.ID, Name: member.Name, Permissions: member.Role.Permissions() & token.Scopes}
	for _, g := range groups[member.ID] {
		a.Groups = append(a.Groups, g.Name)
	}
	return token, a, nil
}

// StartSession gives a browser a secret of its own for the token that somebody shows: for as long as a day's work, and
// never longer than the token.
func (d *Domain) StartSession(ctx context.Context, secret string) (session string, until time.Time, err error) {
	token, a, err := d.holder(ctx, secret, false)
	if err != nil {
		return "", until, err
	}
	until = d.clock.Now().Add(d.sessionLife)
	if token.ExpiresAt.Before(until) {
		until = token.ExpiresAt
	}
	session = newSecret()
	err = d.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.AddToken(ctx, AccessToken{MemberID: a.ID, ParentID: token.ID, Name: "session", Scopes: token.Scopes, ExpiresAt: until}, digestOf(session))
		return err
	})
	return session, until, err
}

// EndSession ends a session; one that is over already is nothing.
func (d *Domain) EndSession(ctx context.Context, session string) error {
	token, a, err := d.holder(ctx, session, true)
	if fault.Is(err, fault.Unauthenticated) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if err := tx.RevokeTokens(ctx, token.ID, d.clock.Now()); err != nil {
			return err
		}
		return tx.RevokeSignInOf(ctx, token.ID, d.clock.Now())
	})
}

// StartConfiguredSession gives a browser a session for a token that is configured and kept in no table. Seal ties the secret to that
// token: the session is known by what it answers, so that a session ends with the configured token too. Denied when the member for whom
// the token stands was removed.
func (d *Domain) StartConfiguredSession(ctx context.Context, a Actor, seal func(secret string) string) (session string, until time.Time, err error) {
	until, session = d.clock.Now().Add(d.sessionLife), seal(newSecret())
	err = d.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		members, err := tx.MembersByID(ctx, a.Organization, []int64{a.ID})
		if err != nil {
			return err
		}
		if m, ok := members[a.ID]; !ok || m.RemovedAt != nil {
			return fault.New(fault.Denied, "the member for whom this token stands was removed; sign in with a token of another owner")
		}
		return signIn(ctx, tx, AccessToken{MemberID: a.ID, Name: "sign-in with the bootstrap token", ExpiresAt: until}, session)
	})
	return session, until, err
}

// signIn adds a sign-in and the session that begins with it. The sign-in's own secret is nobody's: it is there to be seen among the
// member's tokens, and to be revoked, which ends the session.
func signIn(ctx context.Context, tx Tx, t AccessToken, session string) error {
	t.SignIn, t.Scopes = true, RoleOwner.Permissions()
	parent, err := tx.AddToken(ctx, t, digestOf(newSecret()))
	if err != nil {
		return err
	}
	_, err = tx.AddToken(ctx, AccessToken{MemberID: t.MemberID, ParentID: parent.ID, Name: "session", Scopes: t.Scopes, ExpiresAt: t.ExpiresAt}, digestOf(session))
	return err
}

// newSecret is a token: 256 random bits.
func newSecret() string { return tokenPrefix + rand.Text() + rand.Text() }

// digestOf is what is kept of it. So many random bits need neither salt nor slowness.
func digestOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
