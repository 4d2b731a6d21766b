package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Member is a person or a machine that belongs to the organization.
type Member struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Kind      string      `json:"kind"`
	Role      string      `json:"role"`
	CreatedAt time.Time   `json:"createdAt,omitzero"`
	RemovedAt *time.Time  `json:"removedAt,omitempty"`
	Groups    []Reference `json:"groups,omitempty"`
	// Grants are what it may do beside its role: its own, and those of its groups.
	Grants []Grant `json:"grants,omitempty"`
	// Tokens is omitted for callers who may not see them.
	Tokens []AccessToken `json:"tokens,omitempty"`
}

// Group is a named set of members.
type Group struct {
	ID      string      `json:"id"`
	Name    string      `json:"name"`
	Members []Reference `json:"members"`
	Grants  []Grant     `json:"grants,omitempty"`
}

// Grant is permissions of a member or of a group, beside the role. A list of limits that is empty is no limit.
type Grant struct {
	ID           string      `json:"id"`
	Permissions  []string    `json:"permissions"`
	Member       *Reference  `json:"member,omitempty"`
	Group        *Reference  `json:"group,omitempty"`
	Applications []Reference `json:"applications"`
	Environments []Reference `json:"environments"`
	Tiers        []string    `json:"tiers"`
	CreatedAt    time.Time   `json:"createdAt"`
	RevokedAt    *time.Time  `json:"revokedAt,omitempty"`
}

// GrantInput describes a grant to a member or a group, by identifier. Applications and Environments are names or identifiers.
type GrantInput struct {
	Member, Group, Reason                          string
	Permissions, Applications, Environments, Tiers []string
}

// AccessToken is a token of a member; Token is set only when it has just been created.
type AccessToken struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
	// CheckKeys are the keys of checks that it may report; empty for all.
	CheckKeys  []string   `json:"checkKeys,omitempty"`
	CreatedAt  time.Time  `json:"createdAt"`
	ExpiresAt  time.Time  `json:"expiresAt"`
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
	Token      string     `json:"token,omitempty"`
}

// JournalEntry is a row of the organization's journal.
type JournalEntry struct {
	Cursor     string     `json:"cursor"`
	Rollout    JournalOf  `json:"rollout"`
	Transition Transition `json:"transition"`
}

// JournalOf is the rollout that a row belongs to.
type JournalOf struct {
	ID          string    `json:"id"`
	Application Reference `json:"application"`
}

const (
	tokenFields  = `id name scopes checkKeys createdAt expiresAt lastUsedAt revokedAt` //nolint:gosec // the names of fields
	grantFields  = `id permissions member { id name } group { id name } applications { id name } environments { id name } tiers createdAt revokedAt`
	memberFields = `id name kind role createdAt removedAt groups { id name } grants { ` + grantFields + ` } tokens { ` + tokenFields + ` }`
	groupFields  = `id name members { id name } grants { ` + grantFields + ` }`
)

// Members lists the members of the organization.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	return all(0, func(first int, after *string) (connection[Member], error) {
		var data struct{ Members connection[Member] }
		err := c.do(ctx, `query($first: Int, $after: String) { members(first: $first, after: $after) { nodes { `+memberFields+
			` } `+pageInfo+` } }`,
			map[string]any{"first": first, "after": after}, &data)
		return data.Members, err
	})
}

// Member returns a member by name or identifier.
func (c *Client) Member(ctx context.Context, nameOrID string) (Member, error) {
	everybody, err := c.Members(ctx)
	if err != nil {
		return Member{}, err
	}
	i := slices.IndexFunc(everybody, func(m Member) bool { return m.Name == nameOrID || m.ID == nameOrID })
	if i < 0 {
		return Member{}, fault.New(fault.NotFound, "member %q not found", nameOrID)
	}
	return everybody[i], nil
}

// Self returns the member of the current token.
func (c *Client) Self(ctx context.Context) (Member, error) {
	var data struct{ Viewer struct{ Member *Member } }
	err := c.do(ctx, `query { viewer { member { `+memberFields+` } } }`, nil, &data)
	return found(data.Viewer.Member, err, "member", "of this token")
}

// Groups lists groups with their members.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	return all(0, func(first int, after *string) (connection[Group], error) {
		var data struct{ Groups connection[Group] }
		err := c.do(ctx, `query($first: Int, $after: String) { groups(first: $first, after: $after) { nodes { `+groupFields+` } `+pageInfo+` } }`,
			map[string]any{"first": first, "after": after}, &data)
		return data.Groups, err
	})
}

// CreateMember adds a person (USER) or a machine (AGENT).
func (c *Client) CreateMember(ctx context.Context, name, kind, role string) (Member, error) {
	return change[Member](ctx, c, "createMember", "CreateMemberInput", "member", memberFields,
		map[string]any{"name": name, "kind": kind, "role": role})
}

// SetMemberRole gives a member another role.
func (c *Client) SetMemberRole(ctx context.Context, member, role string) (Member, error) {
	return change[Member](ctx, c, "setMemberRole", "SetMemberRoleInput", "member", memberFields,
		map[string]any{"memberId": member, "role": role})
}

// RemoveMember ends a membership.
func (c *Client) RemoveMember(ctx context.Context, member string) (Member, error) {
	return change[Member](ctx, c, "removeMember", "RemoveMemberInput", "member", memberFields, map[string]any{"memberId": member})
}

// GrantPermissions gives permissions to a member or a group.
func (c *Client) GrantPermissions(ctx context.Context, in GrantInput) (Grant, error) {
	input := map[string]any{
		"permissions": in.Permissions, "applications": orEmpty(in.Applications), "environments": orEmpty(in.Environments), "tiers": orEmpty(in.Tiers),
		"reason": in.Reason,
	}
	if in.Member != "" {
		input["memberId"] = in.Member
	}
	if in.Group != "" {
		input["groupId"] = in.Group
	}
	return change[Grant](ctx, c, "grantPermissions", "GrantPermissionsInput", "grant", grantFields, input)
}

func orEmpty(all []string) []string { return append([]string{}, all...) }

// RevokeGrant ends a grant.
func (c *Client) RevokeGrant(ctx context.Context, grant, reason string) (Grant, error) {
	return change[Grant](ctx, c, "revokeGrant", "RevokeGrantInput", "grant", grantFields, map[string]any{"grantId": grant, "reason": reason})
}

// CreateGroup creates a group with members, by identifier.
func (c *Client) CreateGroup(ctx context.Context, name string, members []string) (Group, error) {
	return change[Group](ctx, c, "createGroup", "CreateGroupInput", "group", groupFields, map[string]any{"name": name, "members": members})
}

// SetGroupMembers sets the members of a group, by identifier.
func (c *Client) SetGroupMembers(ctx context.Context, group string, members []string) (Group, error) {
	return change[Group](ctx, c, "setGroupMembers", "SetGroupMembersInput", "group", groupFields,
		map[string]any{"groupId": group, "members": members})
}

// TokenInput describes a token to create.
type TokenInput struct {
	Name string
	// Member is the token's owner, by identifier; empty for the caller.
	Member string
	// Scopes are READ, DEPLOY, APPROVE, CONFIGURE and ADMINISTER; none means everything that the caller may do.
	Scopes []string
	// CheckKeys are the keys of checks that it may report; none for all.
	CheckKeys []string
	Lifetime  time.Duration
}

// CreateToken creates a token; only this response contains the token itself.
func (c *Client) CreateToken(ctx context.Context, in TokenInput) (AccessToken, error) {
	input := map[string]any{"name": in.Name, "lifetimeSeconds": int(in.Lifetime / time.Second)}
	if in.Member != "" {
		input["memberId"] = in.Member
	}
	if len(in.Scopes) > 0 {
		input["scopes"] = in.Scopes
	}
	if len(in.CheckKeys) > 0 {
		input["checkKeys"] = in.CheckKeys
	}
	var data struct {
		CreateToken struct {
			AccessToken json.RawMessage
			Token       string
			Errors      []UserError
		}
	}
	err := c.do(ctx, `mutation($input: CreateTokenInput!) { createToken(input: $input) { accessToken { `+tokenFields+
		` } token errors { field message code } } }`,
		map[string]any{"input": input}, &data)
	if err == nil {
		err = refusal(data.CreateToken.Errors)
	}
	if err != nil {
		return AccessToken{}, err
	}
	var made AccessToken
	if err := json.Unmarshal(data.CreateToken.AccessToken, &made); err != nil {
		return made, fmt.Errorf("decode accessToken of createToken: %w", err)
	}
	made.Token = data.CreateToken.Token
	return made, nil
}

// RevokeToken revokes a token.
func (c *Client) RevokeToken(ctx context.Context, id string) (AccessToken, error) {
	return change[AccessToken](ctx, c, "revokeToken", "RevokeTokenInput", "accessToken", tokenFields, map[string]any{"tokenId": id})
}

// Journal returns the journal of the organization after a cursor, oldest first: all of it, or limit rows if that is positive.
func (c *Client) Journal(ctx context.Context, from string, limit int) ([]JournalEntry, error) {
	return all(limit, func(first int, after *string) (connection[JournalEntry], error) {
		if after == nil && from != "" {
			after = &from
		}
		var data struct{ Journal connection[JournalEntry] }
		err := c.do(ctx, `query($first: Int, $after: String) { journal(first: $first, after: $after) { nodes { cursor rollout { id application { id name } } transition { `+
			transitionFields+` environment { id name } service { id name } } } `+pageInfo+` } }`,
			map[string]any{"first": first, "after": after}, &data)
		return data.Journal, err
	})
}

// UnanswerableRule is an approval that cannot be given: too few members are left who may give it.
type UnanswerableRule struct {
	GateID string `json:"gateId"`
	// Application is the one whose pipeline requires it; nil for what an environment requires of every rollout.
	Application *Reference `json:"application,omitempty"`
	Environment *Reference `json:"environment,omitempty"`
	// Rollout waits for it now; nil for rollouts to come.
	Rollout *Reference `json:"rollout,omitempty"`
	Problem string     `json:"problem"`
}

// String is the rule with its problem, for people.
func (r UnanswerableRule) String() string {
	switch {
	case r.Rollout != nil:
		return r.Problem
	case r.Application != nil:
		return "pipeline of " + r.Application.Name + ": " + r.Problem
	case r.Environment != nil:
		return "environment " + r.Environment.Name + ": " + r.Problem
	default:
		return r.Problem
	}
}

// UnanswerableRules lists approvals that cannot be given as things are: all, or those of an application or an environment, by identifier.
// Servers of the previous release report none.
func (c *Client) UnanswerableRules(ctx context.Context, application, environment string) ([]UnanswerableRule, error) {
	var data struct{ UnanswerableRules []UnanswerableRule }
	variables := map[string]any{}
	if application != "" {
		variables["application"] = application
	}
	if environment != "" {
		variables["environment"] = environment
	}
	err := c.do(ctx, `query($application: ID, $environment: ID) { unanswerableRules(applicationId: $application, environmentId: $environment) `+
		`{ gateId application { id name } environment { id name } rollout { id } problem } }`, variables, &data)
	if IsUnknownField(err) {
		return nil, nil
	}
	return data.UnanswerableRules, err
}
