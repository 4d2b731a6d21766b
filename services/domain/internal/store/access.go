package store

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/store/query"
)

func member(r query.Member) core.Member {
	return core.Member{
		ID: r.ID, Name: r.Name, Kind: core.PrincipalType(r.Kind), Role: core.Role(r.Role), RemovedAt: r.RemovedAt,
		CreatedAt: r.CreatedAt,
	}
}

func group(r query.Group) core.Group {
	return core.Group{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt}
}

func accessToken(r query.AccessToken) core.AccessToken {
	return core.AccessToken{
		ID: r.ID, MemberID: r.MemberID, ParentID: orZero(r.ParentID), Name: r.Name, Scopes: core.Permissions(r.Scopes),
		SignIn: r.SignIn, ProviderSession: orZero(r.ProviderSession), ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt, LastUsedAt: r.LastUsedAt,
		CreatedAt: r.CreatedAt, CheckKeys: r.CheckKeys,
	}
}

// EnsureOwner makes the first member of an organization, which the configured token stands for.
func (s *Store) EnsureOwner(ctx context.Context, organization, id int64, name string) error {
	return s.view(ctx, organization, func(q *query.Queries) error {
		if err := q.EnsureMember(ctx, organization, id, name); err != nil {
			return pg.Classify(err, "ensure owner %d of organization %d", id, organization)
		}
		return pg.Classify(q.SkipMemberID(ctx), "advance member ids")
	})
}

// OrganizationsWithToken implements access.Store.
func (s *Store) OrganizationsWithToken(ctx context.Context, digest []byte) ([]int64, error) {
	ids, err := query.New(s.deps.Pool).OrganizationsWithToken(ctx, digest)
	return ids, pg.Classify(err, "find the organization of a token")
}

// Members implements view.Reads.
func (r reader) Members(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Member], error) {
	return list(ctx, r, organization, p, core.OrderCreated, "members", func(q *query.Queries, w core.Window) ([]query.Member, error) {
		return q.ListMembers(ctx, query.ListMembersParams{
			OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, AboveName: w.Above.Name, BelowName: w.Below.Name,
			ByName: w.Key == core.OrderName, Falling: w.Falling, AtMost: limit(w),
		})
	}, member, func(one core.Member) core.Position { return core.Position{Number: one.ID, Name: one.Name} })
}

// CountMembers implements view.Counts.
func (r reader) CountMembers(ctx context.Context, organization int64) (int, error) {
	return count(ctx, r, organization, "members", func(q *query.Queries) (int64, error) { return q.CountMembers(ctx, organization) })
}

// MembersByID implements view.Reads.
func (r reader) MembersByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Member, error) {
	return byKey(ctx, r, organization, ids, "members", (*query.Queries).MembersByID, keyed(member, func(m core.Member) int64 { return m.ID }))
}

// MemberByName implements view.Reads.
func (r reader) MemberByName(ctx context.Context, organization int64, name string) (m core.Member, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.MemberByName(ctx, organization, name)
		m = member(row)
		return missing(err, "member", name)
	})
	return m, err
}

// HasSignedIn implements access.Tx.
func (t *tx) HasSignedIn(ctx context.Context, member int64) (bool, error) {
	known, err := t.q.HasSignedIn(ctx, t.organization, member)
	return known, pg.Classify(err, "look for tokens of member %d", member)
}

// PeopleWithRoles implements view.Reads.
func (r reader) PeopleWithRoles(ctx context.Context, organization int64, roles []core.Role, most int) (ids []int64, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		names := convertAll(roles, func(role core.Role) string { return string(role) })
		ids, err = q.PeopleWithRoles(ctx, organization, names, int32(most))
		return pg.Classify(err, "find people by role")
	})
	return ids, err
}

// Groups implements view.Reads.
func (r reader) Groups(ctx context.Context, organization int64, p core.Page) (core.Slice[core.Group], error) {
	return list(ctx, r, organization, p, core.OrderCreated, "groups", func(q *query.Queries, w core.Window) ([]query.Group, error) {
		return q.ListGroups(ctx, query.ListGroupsParams{
			OrganizationID: organization, Above: w.Above.Number, Below: w.Below.Number, AboveName: w.Above.Name, BelowName: w.Below.Name,
			ByName: w.Key == core.OrderName, Falling: w.Falling, AtMost: limit(w),
		})
	}, group, func(one core.Group) core.Position { return core.Position{Number: one.ID, Name: one.Name} })
}

// CountGroups implements view.Counts.
func (r reader) CountGroups(ctx context.Context, organization int64) (int, error) {
	return count(ctx, r, organization, "groups", func(q *query.Queries) (int64, error) { return q.CountGroups(ctx, organization) })
}

// GroupsByID implements view.Reads.
func (r reader) GroupsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Group, error) {
	return byKey(ctx, r, organization, ids, "groups", (*query.Queries).GroupsByID, keyed(group, func(g core.Group) int64 { return g.ID }))
}

// GroupByName implements view.Reads.
func (r reader) GroupByName(ctx context.Context, organization int64, name string) (g core.Group, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		row, err := q.GroupByName(ctx, organization, name)
		g = group(row)
		return missing(err, "group", name)
	})
	return g, err
}

// MembersByGroup implements view.Reads.
func (r reader) MembersByGroup(ctx context.Context, organization int64, groups []int64) (map[int64][]core.Member, error) {
	return under(ctx, r, organization, groups, "members of groups", (*query.Queries).MembersByGroup,
		func(row query.MembersByGroupRow) (int64, core.Member) { return row.GroupID, member(row.Member) })
}

// GroupsByMember implements view.Reads.
func (r reader) GroupsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Group, error) {
	return under(ctx, r, organization, members, "groups of members", (*query.Queries).GroupsByMember,
		func(row query.GroupsByMemberRow) (int64, core.Group) { return row.MemberID, group(row.Group) })
}

// TokensByID implements view.Reads.
func (r reader) TokensByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.AccessToken, error) {
	return byKey(ctx, r, organization, ids, "tokens", (*query.Queries).TokensByID,
		keyed(accessToken, func(t core.AccessToken) int64 { return t.ID }))
}

// TokensByMember implements view.Reads.
func (r reader) TokensByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.AccessToken, error) {
	read := func(q *query.Queries, ctx context.Context, organization int64, ids []int64) ([]query.TokensByMemberRow, error) {
		return q.TokensByMember(ctx, ids, organization)
	}
	return under(ctx, r, organization, members, "tokens of members", read, func(row query.TokensByMemberRow) (int64, core.AccessToken) {
		return row.AccessToken.MemberID, accessToken(row.AccessToken)
	})
}

func grant(r query.Grant) core.Grant {
	return core.Grant{
		ID: r.ID, MemberID: orZero(r.MemberID), GroupID: orZero(r.GroupID), Permissions: core.Permissions(r.Permissions),
		Applications: r.Applications, Environments: r.Environments, CreatedAt: r.CreatedAt, RevokedAt: r.RevokedAt,
		Tiers: convertAll(r.Tiers, func(tier string) core.Tier { return core.Tier(tier) }),
	}
}

// GrantsByMember implements core.GrantReads.
func (r reader) GrantsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]core.Grant, error) {
	read := func(q *query.Queries, ctx context.Context, organization int64, ids []int64) ([]query.GrantsByMemberRow, error) {
		return q.GrantsByMember(ctx, ids, organization)
	}
	return under(ctx, r, organization, members, "grants of members", read, func(row query.GrantsByMemberRow) (int64, core.Grant) {
		return row.HolderID, grant(row.Grant)
	})
}

// GrantsByGroup implements view.Reads.
func (r reader) GrantsByGroup(ctx context.Context, organization int64, groups []int64) (map[int64][]core.Grant, error) {
	return under(ctx, r, organization, groups, "grants of groups", (*query.Queries).GrantsByGroup,
		func(row query.Grant) (int64, core.Grant) { return orZero(row.GroupID), grant(row) })
}

// GrantsByID implements view.Reads.
func (r reader) GrantsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Grant, error) {
	return byKey(ctx, r, organization, ids, "grants", (*query.Queries).GrantsByID, keyed(grant, func(g core.Grant) int64 { return g.ID }))
}

// PeopleWithGrants implements view.Reads.
func (r reader) PeopleWithGrants(ctx context.Context, organization int64, p core.Permission, most int) (ids []int64, err error) {
	err = r.run(ctx, organization, func(q *query.Queries) error {
		ids, err = q.PeopleWithGrants(ctx, organization, int16(p), int32(most))
		return pg.Classify(err, "find people by grant")
	})
	return ids, err
}

// AddGrant implements access.Tx.
func (t *tx) AddGrant(ctx context.Context, g core.Grant) (core.Grant, error) {
	row, err := t.q.InsertGrant(ctx, query.InsertGrantParams{
		OrganizationID: t.organization, MemberID: orNull(g.MemberID), GroupID: orNull(g.GroupID), Permissions: int16(g.Permissions),
		Applications: append([]int64{}, g.Applications...), Environments: append([]int64{}, g.Environments...),
		Tiers: append([]string{}, convertAll(g.Tiers, func(tier core.Tier) string { return string(tier) })...),
	})
	return grant(row), pg.Classify(err, "add a grant")
}

// RevokeGrant implements access.Tx.
func (t *tx) RevokeGrant(ctx context.Context, id int64, at time.Time) error {
	n, err := t.q.RevokeGrant(ctx, at, t.organization, id)
	return one(n, err, "grant in force", id)
}

// AddMember implements access.Tx.
func (t *tx) AddMember(ctx context.Context, m core.Member) (core.Member, error) {
	row, err := t.q.InsertMember(ctx, query.InsertMemberParams{
		OrganizationID: t.organization, Name: m.Name, Kind: string(m.Kind),
		Role: string(m.Role),
	})
	return member(row), pg.Classify(err, "add member %q", m.Name)
}

// LockMembers implements access.Tx.
func (t *tx) LockMembers(ctx context.Context, id int64) ([]core.Member, error) {
	rows, err := t.q.LockMembers(ctx, t.organization, id)
	return convertAll(rows, member), pg.Classify(err, "lock member %d and the owners", id)
}

// SaveMember implements access.Tx.
func (t *tx) SaveMember(ctx context.Context, m core.Member) error {
	n, err := t.q.SaveMember(ctx, query.SaveMemberParams{
		OrganizationID: t.organization, ID: m.ID, Role: string(m.Role),
		RemovedAt: m.RemovedAt,
	})
	return one(n, err, "member", m.ID)
}

// MemberByIdentity implements access.Tx.
func (t *tx) MemberByIdentity(ctx context.Context, issuer, subject string) (core.Member, error) {
	row, err := t.q.MemberByIdentity(ctx, t.organization, issuer, subject)
	return member(row), missing(err, "member", "of this identity")
}

// SetMemberIdentity implements access.Tx.
func (t *tx) SetMemberIdentity(ctx context.Context, id int64, issuer, subject string) error {
	n, err := t.q.SetMemberIdentity(ctx, query.SetMemberIdentityParams{
		OrganizationID: t.organization, ID: id,
		Issuer: issuer, Subject: subject,
	})
	return one(n, err, "member without an identity", id)
}

// AddGroup implements access.Tx.
func (t *tx) AddGroup(ctx context.Context, g core.Group) (core.Group, error) {
	row, err := t.q.InsertGroup(ctx, t.organization, g.Name)
	return group(row), pg.Classify(err, "add group %q", g.Name)
}

// LockGroup implements access.Tx.
func (t *tx) LockGroup(ctx context.Context, id int64) (core.Group, error) {
	row, err := t.q.LockGroup(ctx, t.organization, id)
	return group(row), missing(err, "group", id)
}

// SetGroupMembers implements access.Tx.
func (t *tx) SetGroupMembers(ctx context.Context, id int64, members []int64, at time.Time) error {
	if members == nil {
		members = []int64{} // NULL would mean that nobody knows
	}
	if err := t.q.LeaveGroup(ctx, query.LeaveGroupParams{At: at, OrganizationID: t.organization, GroupID: id, Members: members}); err != nil {
		return pg.Classify(err, "take members out of group %d", id)
	}
	return pg.Classify(t.q.JoinGroup(ctx, t.organization, id, members), "put members into group %d", id)
}

// AddToken implements access.Tx.
func (t *tx) AddToken(ctx context.Context, token core.AccessToken, digest []byte) (core.AccessToken, error) {
	row, err := t.q.InsertToken(ctx, query.InsertTokenParams{
		OrganizationID: t.organization, MemberID: token.MemberID, ParentID: orNull(token.ParentID), Name: token.Name, Digest: digest,
		Scopes: int16(token.Scopes), ExpiresAt: token.ExpiresAt, SignIn: token.SignIn, ProviderSession: orNull(token.ProviderSession),
		CheckKeys: append([]string{}, token.CheckKeys...),
	})
	return accessToken(row), pg.Classify(err, "add token of member %d", token.MemberID)
}

// RevokeTokens implements access.Tx.
func (t *tx) RevokeTokens(ctx context.Context, id int64, at time.Time) error {
	_, err := t.q.RevokeTokens(ctx, at, t.organization, id)
	return pg.Classify(err, "revoke token %d", id)
}

// RevokeSignInOf implements access.Tx.
func (t *tx) RevokeSignInOf(ctx context.Context, session int64, at time.Time) error {
	_, err := t.q.RevokeSignInOf(ctx, at, t.organization, session)
	return pg.Classify(err, "revoke the sign-in of session %d", session)
}

// RevokeSignIns implements access.Tx.
func (t *tx) RevokeSignIns(ctx context.Context, which access.SignIns, at time.Time) error {
	_, err := t.q.RevokeSignIns(ctx, query.RevokeSignInsParams{
		At: at, OrganizationID: t.organization, Issuer: which.Issuer, Subject: which.Subject, ProviderSession: which.Session,
	})
	return pg.Classify(err, "revoke sign-ins at %s", which.Issuer)
}

// TokenByDigest implements access.Tx.
func (t *tx) TokenByDigest(ctx context.Context, digest []byte, at time.Time) (core.AccessToken, core.Member, error) {
	row, err := t.q.TokenByDigest(ctx, t.organization, digest, at)
	return accessToken(row.AccessToken), member(row.Member), missing(err, "token", "of this digest")
}

// usedWithin is how exactly the last use of a token is known.
const usedWithin = time.Minute

// TouchToken implements access.Tx.
func (t *tx) TouchToken(ctx context.Context, id int64, at time.Time) error {
	err := t.q.TouchToken(ctx, query.TouchTokenParams{At: at, OrganizationID: t.organization, ID: id, UnlessSince: at.Add(-usedWithin)})
	return pg.Classify(err, "note the use of token %d", id)
}

// AddRequest implements access.Tx.
func (t *tx) AddRequest(ctx context.Context, p core.Principal, r access.Request) (bool, error) {
	// Of two at the same moment the second waits for the first one's commit, and finds it.
	n, err := t.q.InsertRequest(ctx, query.InsertRequestParams{
		OrganizationID: t.organization, PrincipalType: string(p.Type), PrincipalID: p.ID, Key: r.Key, Fingerprint: r.Fingerprint,
	})
	return n == 1, pg.Classify(err, "keep request %q", r.Key)
}

// PriorRequest implements access.Tx.
func (t *tx) PriorRequest(ctx context.Context, p core.Principal, key string) (access.PriorRequest, error) {
	row, err := t.q.GetRequest(ctx, query.GetRequestParams{
		OrganizationID: t.organization, PrincipalType: string(p.Type),
		PrincipalID: p.ID, Key: key,
	})
	return access.PriorRequest{Fingerprint: row.Fingerprint, Answered: row.Answer != nil, Answer: row.Answer}, missing(err, "request", key)
}

// AnswerRequest implements access.Tx.
func (t *tx) AnswerRequest(ctx context.Context, p core.Principal, key string, answer []byte) error {
	err := t.q.AnswerRequest(ctx, query.AnswerRequestParams{
		Answer: answer, OrganizationID: t.organization, PrincipalType: string(p.Type),
		PrincipalID: p.ID, Key: key,
	})
	return pg.Classify(err, "keep the answer to request %q", key)
}
