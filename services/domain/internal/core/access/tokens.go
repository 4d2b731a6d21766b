package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// NewToken is one to be made.
type NewToken struct {
	// MemberID is whose; 0 for the actor's own.
	MemberID int64
	// Name distinguishes its holder's tokens.
	Name string
	// Scopes are what it is good for; 0 for all that the actor may do but break-glass, which has to be asked for. Reading always belongs to
	// it.
	Scopes core.Permissions
	// CheckKeys are the keys of checks that it may report; empty for all that the actor may report.
	CheckKeys []string
	// Lifetime is how long it is good; 0 for 90 days. The first one of another person is good for 7 days at most.
	Lifetime time.Duration
}

const (
	defaultTokenLife = 90 * 24 * time.Hour
	maxTokenLife     = 366 * 24 * time.Hour
	// SessionLife is how long a browser stays signed in, unless Deps says otherwise.
	SessionLife = 12 * time.Hour
	// IdentitySessionLife is the same for sign-ins at an identity provider: this service does not learn that a person has left there, unless
	// the provider supports back-channel logout, so it has to ask again.
	IdentitySessionLife = time.Hour
	// maxCheckKeys is how many keys of checks a token may be bound to.
	maxCheckKeys = 20
	// tokenPrefix lets people, and scanners for secrets, see what it is.
	tokenPrefix = "lockstep_"
)

// CreateToken makes a token, which is answered here and never again. Everybody makes their own; those who administer,
// also those of machine members and the first one of a new person. It never allows more than the actor may.
func (u *UseCases) CreateToken(ctx context.Context, a core.Actor, n NewToken) (core.AccessToken, string, error) {
	if n.MemberID == 0 {
		n.MemberID = a.ID
	}
	if n.Scopes == 0 {
		n.Scopes = a.Somewhere() &^ core.PermissionsOf(core.MayBreakGlass, core.MayBypass)
	}
	n.Scopes |= core.PermissionsOf(core.MayRead)
	if len(n.CheckKeys) == 0 {
		n.CheckKeys = a.CheckKeys
	}
	if n.Lifetime == 0 {
		n.Lifetime = defaultTokenLife
	}
	if err := n.check(); err != nil {
		return core.AccessToken{}, "", err
	}
	secret := newSecret()
	var made core.AccessToken
	err := core.By(ctx, u.store, a, core.ActionCreateToken, func(ctx context.Context, tx Tx) error {
		if beyond := n.Scopes &^ a.Somewhere(); beyond != 0 {
			return fault.New(fault.Denied, "a token cannot have permissions that its creator lacks: %v", beyond.List())
		}
		for _, key := range n.CheckKeys {
			if err := a.MayReportKey(key); err != nil {
				return err
			}
		}
		members, err := tx.MembersByID(ctx, a.Organization, []int64{n.MemberID})
		if err != nil {
			return err
		}
		m, ok := members[n.MemberID]
		if !ok || m.RemovedAt != nil {
			return fault.New(fault.NotFound, "member %d does not exist", n.MemberID)
		}
		if n.MemberID != a.ID {
			if n, err = forAnother(ctx, tx, a, m, n); err != nil {
				return err
			}
		}
		made = core.AccessToken{
			MemberID: n.MemberID, Name: n.Name, Scopes: n.Scopes, CheckKeys: n.CheckKeys, ExpiresAt: u.clock.Now().Add(n.Lifetime),
		}
		made, err = tx.AddToken(ctx, made, digestIn(made, secret))
		if err != nil {
			return err
		}
		return note(ctx, tx, a, core.ActionCreateToken, core.AccessSubject{
			Kind: core.AccessOfToken, ID: made.ID, Name: made.Name,
		}, fmt.Sprintf("of %s: %s", m.Name, made.Grant()), nil, tokenState(made))
	})
	return made, secret, err
}

// forAnother is a token as it may be made for a member who is not the actor: a machine's by an owner, and the first one of a person, with
// which they sign in and make their own. Nobody makes another token for a person who has had one or has signed in: its holder could approve
// in their name (D50).
func forAnother(ctx context.Context, tx Tx, a core.Actor, m core.Member, n NewToken) (NewToken, error) {
	if err := mayHandle(a, m.ID); err != nil {
		return n, err
	}
	if m.Kind == core.PrincipalAgent {
		return n, nil
	}
	// Of two owners who introduce a person at the same moment the second waits, and finds the token of the first.
	if _, err := tx.LockMembers(ctx, m.ID); err != nil {
		return n, err
	}
	known, err := tx.HasSignedIn(ctx, m.ID)
	if err != nil {
		return n, err
	}
	if known {
		return n, fault.New(
			fault.Denied, "nobody makes another person's tokens; %s has had a token or signed in before, and makes their own (of machine members, "+
				"owners make the tokens)", m.Name,
		)
	}
	if err := refuseDecisive(ctx, tx, a.Organization, m); err != nil {
		return n, err
	}
	n.Lifetime = min(n.Lifetime, firstTokenLife)
	return n, nil
}

// refuseDecisive refuses the first token of a person who decides about an environment under change control: its maker could be both
// of the two people that change control takes.
func refuseDecisive(ctx context.Context, tx Tx, organization int64, m core.Member) error {
	controlled, err := tx.ControlledEnvironments(ctx)
	if err != nil || len(controlled) == 0 {
		return err
	}
	grants, err := tx.GrantsByMember(ctx, organization, []int64{m.ID})
	if err != nil {
		return err
	}
	a := core.ActorOf(organization, m, grants[m.ID], nil)
	for _, id := range slices.Sorted(maps.Keys(controlled)) {
		for _, p := range []core.Permission{core.MayConfigure, core.MayBreakGlass, core.MayAdminister} {
			if !a.HasIn(p, controlled[id].Target(0)) {
				continue
			}
			return fault.New(
				fault.Refused, "%s has the permission %q in environment %q, which is under change control, and the maker of that first token could be "+
					"both of the two people it takes; let %s sign in at the identity provider, or make the token while the role is viewer", m.Name, p,
				controlled[id].Name, m.Name,
			)
		}
	}
	return nil
}

func (n NewToken) check() error {
	var found []fault.Field
	if n.Name == "" || len(n.Name) > 100 {
		found = append(
			found, fault.Field{Name: "/name", Problem: fmt.Sprintf("found %d bytes; expected 1 to 100 that describe its purpose", len(n.Name))},
		)
	}
	if n.Lifetime < time.Minute || n.Lifetime > maxTokenLife {
		found = append(found, fault.Field{
			Name: "/lifetimeSeconds", Problem: fmt.Sprintf("found %.0f; expected 60 to %.0f", n.Lifetime.Seconds(), maxTokenLife.Seconds()),
		})
	}
	if len(n.CheckKeys) > maxCheckKeys {
		found = append(found, fault.Field{
			Name: "/checkKeys", Problem: fmt.Sprintf("found %d keys; expected at most %d", len(n.CheckKeys), maxCheckKeys),
		})
	}
	for i, key := range n.CheckKeys {
		if !core.CheckKey.MatchString(key) {
			found = append(found, fault.Field{
				Name: fmt.Sprintf("/checkKeys/%d", i), Problem: fmt.Sprintf("found %.100q; expected 1 to 63 lower-case letters, digits and hyphens",
					key),
			})
		}
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// mayHandle is nil when an actor may see, make and revoke the tokens of a member: its own, or as one who administers.
func mayHandle(a core.Actor, member int64) error {
	if a.ID == member || a.Permissions.Has(core.MayAdminister) {
		return nil
	}
	return fault.New(fault.Denied, "the tokens of others are for those with the permission %q", core.MayAdminister)
}

// RevokeToken ends a token, and every session that began with it. Repeating it is a no-op.
func (u *UseCases) RevokeToken(ctx context.Context, a core.Actor, token int64) (core.AccessToken, error) {
	var revoked core.AccessToken
	err := core.By(ctx, u.store, a, core.ActionRevokeToken, func(ctx context.Context, tx Tx) error {
		known, err := tx.TokensByID(ctx, a.Organization, []int64{token})
		if err != nil {
			return err
		}
		t, ok := known[token]
		// For actors who may not handle it, another member's token does not exist: its number reveals nothing.
		if !ok || mayHandle(a, t.MemberID) != nil {
			return fault.New(fault.NotFound, "token %d does not exist", token)
		}
		if err := tx.RevokeTokens(ctx, token, u.clock.Now()); err != nil {
			return err
		}
		again, err := tx.TokensByID(ctx, a.Organization, []int64{token})
		if err != nil {
			return err
		}
		revoked = again[token]
		if t.RevokedAt != nil { // a repetition is a no-op, and not recorded
			return nil
		}
		return note(ctx, tx, a, core.ActionRevokeToken, core.AccessSubject{
			Kind: core.AccessOfToken, ID: token, Name: t.Name,
		}, fmt.Sprintf("of member %d: %s", t.MemberID, t.Grant()), tokenState(t), nil)
	})
	return revoked, err
}

// tokenState is what the journal keeps of a token: what it is good for, and never the token.
func tokenState(t core.AccessToken) state {
	return state{"member": t.MemberID, "name": t.Name, "good_for": t.Grant()}
}

// VisibleTokens are those of members that an actor may see; no key for the others.
func (u *UseCases) VisibleTokens(ctx context.Context, a core.Actor, members []int64) (map[int64][]core.AccessToken, error) {
	seen := slices.DeleteFunc(slices.Clone(members), func(m int64) bool { return mayHandle(a, m) != nil })
	return u.store.TokensByMember(ctx, a.Organization, seen)
}

// Authenticate finds the holder of a token: Unauthenticated if it is unknown, expired or revoked. A session's secret is
// good in a browser's cookie alone, and a token nowhere but as one.
func (u *UseCases) Authenticate(ctx context.Context, secret string, session bool) (core.Actor, error) {
	_, a, err := u.holder(ctx, secret, session)
	return a, err
}

// holder is a good token, and who holds it. Nothing is kept in memory: a token that is revoked is good for nothing at once.
func (u *UseCases) holder(ctx context.Context, secret string, session bool) (core.AccessToken, core.Actor, error) {
	unknown := fault.New(fault.Unauthenticated, "invalid or expired token")
	digest, now := digestOf(secret), u.clock.Now()
	organizations, err := u.store.OrganizationsWithToken(ctx, digest)
	if err == nil && len(organizations) == 0 {
		digest = boundDigestOf(secret)
		organizations, err = u.store.OrganizationsWithToken(ctx, digest)
	}
	if err != nil {
		return core.AccessToken{}, core.Actor{}, err
	}
	if len(organizations) == 0 {
		return core.AccessToken{}, core.Actor{}, unknown
	}
	organization := organizations[0] // so many random bits are nobody else's
	var token core.AccessToken
	var member core.Member
	var groups map[int64][]core.Group
	var grants map[int64][]core.Grant
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		var err error
		if token, member, err = tx.TokenByDigest(ctx, digest, now); err != nil {
			return err
		}
		if groups, err = tx.GroupsByMember(ctx, organization, []int64{member.ID}); err != nil {
			return err
		}
		if grants, err = tx.GrantsByMember(ctx, organization, []int64{member.ID}); err != nil {
			return err
		}
		return tx.TouchToken(ctx, token.ID, now)
	})
	if fault.Is(err, fault.NotFound) || err == nil && (token.ParentID != 0) != session {
		return core.AccessToken{}, core.Actor{}, unknown
	}
	if err != nil {
		return core.AccessToken{}, core.Actor{}, err
	}
	a := core.ActorOf(organization, member, grants[member.ID], groups[member.ID]).LimitedTo(token.Scopes)
	a.CheckKeys = token.CheckKeys
	return token, a, nil
}

// StartSession gives a browser a secret of its own in exchange for a token: for as long as a day's work, and
// never longer than the token.
func (u *UseCases) StartSession(ctx context.Context, secret string) (session string, until time.Time, err error) {
	token, a, err := u.holder(ctx, secret, false)
	if err != nil {
		return "", until, err
	}
	until = u.clock.Now().Add(u.sessionLife)
	if token.ExpiresAt.Before(until) {
		until = token.ExpiresAt
	}
	session = newSecret()
	err = u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		t := core.AccessToken{
			MemberID: a.ID, ParentID: token.ID, Name: "session", Scopes: token.Scopes, CheckKeys: token.CheckKeys, ExpiresAt: until,
		}
		_, err := tx.AddToken(ctx, t, digestIn(t, session))
		return err
	})
	return session, until, err
}

// EndSession ends a session; for one that has ended it is a no-op.
func (u *UseCases) EndSession(ctx context.Context, session string) error {
	token, a, err := u.holder(ctx, session, true)
	if fault.Is(err, fault.Unauthenticated) {
		return nil
	}
	if err != nil {
		return err
	}
	return u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if err := tx.RevokeTokens(ctx, token.ID, u.clock.Now()); err != nil {
			return err
		}
		return tx.RevokeSignInOf(ctx, token.ID, u.clock.Now())
	})
}

// StartConfiguredSession gives a browser a session for a token that is configured and kept in no table. Seal ties the secret to that
// token: the session is known by what it answers, so that a session ends with the configured token too. Denied when the member for whom
// the token stands was removed.
func (u *UseCases) StartConfiguredSession(
	ctx context.Context, a core.Actor, seal func(secret string) string,
) (session string, until time.Time, err error) {
	until, session = u.clock.Now().Add(u.sessionLife), seal(newSecret())
	err = u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		members, err := tx.MembersByID(ctx, a.Organization, []int64{a.ID})
		if err != nil {
			return err
		}
		if m, ok := members[a.ID]; !ok || m.RemovedAt != nil {
			return fault.New(fault.Denied, "the member for whom this token stands was removed; sign in with a token of another owner")
		}
		return signIn(ctx, tx, core.AccessToken{MemberID: a.ID, Name: "sign-in with the bootstrap token", ExpiresAt: until}, session)
	})
	return session, until, err
}

// signIn adds a sign-in and the session that begins with it. The sign-in's own secret is never handed out: the sign-in is kept to be listed
// among the member's tokens, and to be revoked, which ends the session.
func signIn(ctx context.Context, tx Tx, t core.AccessToken, session string) error {
	t.SignIn, t.Scopes = true, core.RoleOwner.Permissions()
	parent, err := tx.AddToken(ctx, t, digestOf(newSecret()))
	if err != nil {
		return err
	}
	_, err = tx.AddToken(ctx, core.AccessToken{
		MemberID: t.MemberID, ParentID: parent.ID, Name: "session", Scopes: t.Scopes, ExpiresAt: t.ExpiresAt,
	}, digestOf(session))
	return err
}

// newSecret is a token: 256 random bits.
func newSecret() string { return tokenPrefix + rand.Text() + rand.Text() }

// digestOf is what is kept of it. So many random bits need neither salt nor slowness.
func digestOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// boundDigestOf is digestOf for a token that is bound to keys of checks: a replica of a release that does not know the binding, during an
// upgrade, does not find it, and so cannot take it for a token without one. Tokens of releases that kept them like all others stay good.
func boundDigestOf(secret string) []byte { return digestOf("bound to keys of checks\n" + secret) }

// digestIn is what is kept of the secret of a token.
func digestIn(t core.AccessToken, secret string) []byte {
	if len(t.CheckKeys) > 0 {
		return boundDigestOf(secret)
	}
	return digestOf(secret)
}
