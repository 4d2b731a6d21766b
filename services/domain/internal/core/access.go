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

// Member is a person or a machine that belongs to an organization. Its ID is what journals name.
type Member struct {
	ID   int64
	Name string
	// Kind is PrincipalUser or PrincipalAgent.
	Kind      PrincipalType
	Role      Role
	RemovedAt *time.Time
	CreatedAt time.Time
}

// Group is a named set of members, for gates that not everybody may answer (D24).
type Group struct {
	ID        int64
	Name      string
	CreatedAt time.Time
}

// AccessToken is what a member shows to say who it is; the token itself is kept nowhere.
type AccessToken struct {
	ID       int64
	MemberID int64
	// ParentID is the token that a browser's session was given for; 0 for a token of its own.
	ParentID int64
	Name     string
	// Scopes are what it is good for, as far as the member's role allows that too.
	Scopes     Permissions
	ExpiresAt  time.Time
	RevokedAt  *time.Time
	LastUsedAt *time.Time
	CreatedAt  time.Time
}

// NewMember is one to be added.
type NewMember struct {
	Name string
	Kind PrincipalType
	Role Role
}

// NewToken is one to be made.
type NewToken struct {
	// MemberID is whose; 0 for the actor's own.
	MemberID int64
	// Name tells its holder's tokens apart.
	Name string
	// Scopes are what it is good for; 0 for all that the actor may do. Reading always belongs to it.
	Scopes Permissions
	// Lifetime is how long it is good; 0 for 90 days.
	Lifetime time.Duration
}

const (
	defaultTokenLife = 90 * 24 * time.Hour
	maxTokenLife     = 366 * 24 * time.Hour
	// SessionLife is how long a browser stays signed in.
	SessionLife = 12 * time.Hour
	// tokenPrefix lets people, and scanners for secrets, see what it is.
	tokenPrefix = "lockstep_"
	maxGroup    = 1000
)

// CreateMember adds a person or a machine.
func (d *Domain) CreateMember(ctx context.Context, a Actor, n NewMember) (Member, error) {
	found := checkMemberName(n.Name)
	if n.Kind != PrincipalUser && n.Kind != PrincipalAgent {
		found = append(found, fault.Field{Name: "/kind", Problem: fmt.Sprintf("found %q; expected user or agent", n.Kind)})
	}
	if found = append(found, checkRole(n.Role)...); len(found) > 0 {
		return Member{}, fault.InvalidFields(found...)
	}
	var made Member
	err := d.by(ctx, a, ActionCreateMember, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddMember(ctx, Member{Name: n.Name, Kind: n.Kind, Role: n.Role})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "a member named %q exists already", n.Name)
		}
		return err
	})
	return made, err
}

// SetMemberRole gives a member another role. Its tokens follow at once.
func (d *Domain) SetMemberRole(ctx context.Context, a Actor, member int64, role Role) (Member, error) {
	if found := checkRole(role); len(found) > 0 {
		return Member{}, fault.InvalidFields(found...)
	}
	return d.changeMember(ctx, a, ActionSetMemberRole, member, func(m *Member) { m.Role = role })
}

// RemoveMember ends a membership: its tokens are good for nothing from then on, and what it has done stays on record.
func (d *Domain) RemoveMember(ctx context.Context, a Actor, member int64) (Member, error) {
	now := d.clock.Now()
	return d.changeMember(ctx, a, ActionRemoveMember, member, func(m *Member) { m.RemovedAt = &now })
}

// changeMember changes one, unless the organization would be left without an owner.
func (d *Domain) changeMember(ctx context.Context, a Actor, action Action, member int64, change func(*Member)) (Member, error) {
	var changed Member
	err := d.by(ctx, a, action, func(ctx context.Context, tx Tx) error {
		// The owners are locked too, so that of two who leave at the same moment the second sees the first.
		locked, err := tx.LockMembers(ctx, member)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(locked, func(m Member) bool { return m.ID == member })
		if i < 0 {
			return fault.New(fault.NotFound, "member %d does not exist", member)
		}
		owns := func(m Member) bool { return m.Role == RoleOwner && m.RemovedAt == nil }
		owned := owns(locked[i])
		change(&locked[i])
		changed = locked[i]
		if owned && !slices.ContainsFunc(locked, owns) {
			return fault.New(fault.Refused, "%q is the only owner; make somebody else an owner first", changed.Name)
		}
		return tx.SaveMember(ctx, changed)
	})
	return changed, err
}

// CreateGroup makes a group with its first members.
func (d *Domain) CreateGroup(ctx context.Context, a Actor, name string, members []int64) (Group, error) {
	if found := append(checkName("/name", name), checkGroupSize(members)...); len(found) > 0 {
		return Group{}, fault.InvalidFields(found...)
	}
	var made Group
	err := d.by(ctx, a, ActionCreateGroup, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddGroup(ctx, Group{Name: name})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "a group named %q exists already", name)
		}
		if err != nil {
			return err
		}
		return d.setMembers(ctx, tx, a.Organization, made.ID, members)
	})
	return made, err
}

// SetGroupMembers says who belongs to a group from now on.
func (d *Domain) SetGroupMembers(ctx context.Context, a Actor, group int64, members []int64) (Group, error) {
	if found := checkGroupSize(members); len(found) > 0 {
		return Group{}, fault.InvalidFields(found...)
	}
	var changed Group
	err := d.by(ctx, a, ActionSetGroupMembers, func(ctx context.Context, tx Tx) error {
		var err error
		if changed, err = tx.LockGroup(ctx, group); err != nil {
			return err
		}
		return d.setMembers(ctx, tx, a.Organization, group, members)
	})
	return changed, err
}

func (d *Domain) setMembers(ctx context.Context, tx Tx, organization, group int64, members []int64) error {
	known, err := tx.MembersByID(ctx, organization, members)
	if err != nil {
		return err
	}
	for i, id := range members {
		if m, ok := known[id]; !ok || m.RemovedAt != nil {
			return fault.InvalidFields(fault.Field{Name: fmt.Sprintf("/members/%d", i), Problem: fmt.Sprintf("member_%d does not exist", id)})
		}
	}
	return tx.SetGroupMembers(ctx, group, members, d.clock.Now())
}

// CreateToken makes a token, which is answered here and never again. Everybody makes their own; those who administer,
// also for others. It never allows more than the actor may.
func (d *Domain) CreateToken(ctx context.Context, a Actor, n NewToken) (AccessToken, string, error) {
	if n.MemberID == 0 {
		n.MemberID = a.ID
	}
	if n.Scopes == 0 {
		n.Scopes = a.Permissions
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
		return err
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
		revoked = again[token]
		return err
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
	unknown := fault.New(fault.Unauthenticated, "found a token that nobody has, or that is not good any more; expected one of this installation")
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
	a := Actor{Organization: organization, Type: member.Kind, ID: member.ID, Permissions: member.Role.Permissions() & token.Scopes}
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
	until = d.clock.Now().Add(SessionLife)
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
		return tx.RevokeTokens(ctx, token.ID, d.clock.Now())
	})
}

// newSecret is a token: 256 random bits.
func newSecret() string { return tokenPrefix + rand.Text() + rand.Text() }

// digestOf is what is kept of it. So many random bits need neither salt nor slowness.
func digestOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func checkRole(r Role) []fault.Field {
	if slices.Contains(AllRoles(), r) {
		return nil
	}
	return []fault.Field{{Name: "/role", Problem: fmt.Sprintf("found %q; expected viewer, approver, deployer, maintainer or owner", r)}}
}

// checkMemberName takes what people are called elsewhere, addresses above all, as long as it prints.
func checkMemberName(name string) []fault.Field {
	if len(name) > 0 && len(name) <= 100 && !slices.ContainsFunc([]rune(name), func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil
	}
	return []fault.Field{{Name: "/name", Problem: fmt.Sprintf("found %.100q; expected 1 to 100 bytes without spaces, such as alice@example.com", name)}}
}

func checkGroupSize(members []int64) []fault.Field {
	if len(members) <= maxGroup {
		return nil
	}
	return []fault.Field{{Name: "/members", Problem: fmt.Sprintf("found %d; expected at most %d", len(members), maxGroup)}}
}
