package graph

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/access"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// Members, groups and tokens: who may do what.

// Members is one page of those who belong to the organization.
func (q query) Members(
	ctx context.Context, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.MemberConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.MemberConnection{}, err
	}
	organization := loadersOf(ctx).actor.Organization
	s, err := q.domain.View.Members(ctx, organization, p)
	return model.MemberConnection(model.Connect[model.MemberEdge](s, model.WrapMember, func(ctx context.Context) (int, error) {
		return q.domain.View.CountMembers(ctx, organization)
	})), err
}

// Groups is one page of them.
func (q query) Groups(
	ctx context.Context, first *int, after *string, last *int, before *string, orderBy *core.Order,
) (model.GroupConnection, error) {
	p, err := page(defaultPage, first, after, last, before, orderBy)
	if err != nil {
		return model.GroupConnection{}, err
	}
	organization := loadersOf(ctx).actor.Organization
	s, err := q.domain.View.Groups(ctx, organization, p)
	return model.GroupConnection(model.Connect[model.GroupEdge](s, model.WrapGroup, func(ctx context.Context) (int, error) {
		return q.domain.View.CountGroups(ctx, organization)
	})), err
}

// Member is the viewer as a member; null for a principal that is not a member.
func (viewer) Member(ctx context.Context, _ *model.Viewer) (*model.Member, error) {
	l := loadersOf(ctx)
	return principal(ctx, l.actor.Type, l.actor.ID)
}

// transition resolves those of Transition.
type transition struct{}

// Principal is the member who did it.
func (transition) Principal(ctx context.Context, t *model.Transition) (*model.Member, error) {
	return principal(ctx, t.Transition.PrincipalType, t.Transition.PrincipalID)
}

// passageCondition resolves those of PassageCondition.
type passageCondition struct{}

// Environment is what a check or a pin is about.
func (passageCondition) Environment(ctx context.Context, c *model.PassageCondition) (*model.Environment, error) {
	if c.Condition.Kind != core.ConditionCheck && c.Condition.Kind != core.ConditionPin {
		return nil, nil
	}
	return optional(ctx, loadersOf(ctx).environments, c.ControlID, model.WrapEnvironment)
}

// passageConditionBy resolves those of PassageConditionBy.
type passageConditionBy struct{}

// Principal is the member who satisfied it.
func (passageConditionBy) Principal(ctx context.Context, b *model.PassageConditionBy) (*model.Member, error) {
	return principal(ctx, b.Type, b.ID)
}

// Environment is where what has changed is.
func (transition) Environment(ctx context.Context, t *model.Transition) (*model.Environment, error) {
	l := loadersOf(ctx)
	stop := t.Subject.ID
	switch t.Subject.Kind {
	case core.SubjectDeployment:
		d, found, err := l.deployments.load(ctx, t.Subject.ID)
		if err != nil || !found {
			return nil, err
		}
		stop = d.RolloutEnvironmentID
	case core.SubjectRolloutEnvironment:
	default:
		return nil, nil
	}
	e, found, err := l.rolloutEnvironments.load(ctx, stop)
	if err != nil || !found {
		return nil, err
	}
	return optional(ctx, l.environments, e.EnvironmentID, model.WrapEnvironment)
}

// Service is what is deployed.
func (transition) Service(ctx context.Context, t *model.Transition) (*model.Service, error) {
	if t.Subject.Kind != core.SubjectDeployment {
		return nil, nil
	}
	l := loadersOf(ctx)
	d, found, err := l.deployments.load(ctx, t.Subject.ID)
	if err != nil || !found {
		return nil, err
	}
	return optional(ctx, l.services, d.ServiceID, model.WrapService)
}

// principal is a member by what journals say of it.
func principal(ctx context.Context, kind core.PrincipalType, number int64) (*model.Member, error) {
	if kind != core.PrincipalUser && kind != core.PrincipalAgent {
		return nil, nil
	}
	return optional(ctx, loadersOf(ctx).members, number, model.WrapMember)
}

// member resolves those of Member.
type member struct{}

// Groups are those that the member belongs to.
func (member) Groups(ctx context.Context, m *model.Member) ([]model.Group, error) {
	return list(ctx, loadersOf(ctx).groupsOf, m.ID, model.WrapGroup)
}

// Tokens are the member's; null for viewers who may not see them.
func (member) Tokens(ctx context.Context, m *model.Member) ([]model.AccessToken, error) {
	l := loadersOf(ctx)
	if m.ID != l.actor.ID && !l.actor.Permissions.Has(core.MayAdminister) {
		return nil, nil
	}
	return list(ctx, l.tokensOf, m.ID, model.WrapAccessToken)
}

// group resolves those of Group.
type group struct{}

// Members are those who belong to it.
func (group) Members(ctx context.Context, g *model.Group) ([]model.Member, error) {
	return list(ctx, loadersOf(ctx).membersOf, g.ID, model.WrapMember)
}

// Grants are those of its members.
func (group) Grants(ctx context.Context, g *model.Group) ([]model.Grant, error) {
	return list(ctx, loadersOf(ctx).grantsOfGroup, g.ID, model.WrapGrant)
}

// Grants are the member's own, and those of its groups.
func (member) Grants(ctx context.Context, m *model.Member) ([]model.Grant, error) {
	return list(ctx, loadersOf(ctx).grantsOfMember, m.ID, model.WrapGrant)
}

// grant resolves those of Grant.
type grant struct{}

// Member is who has it.
func (grant) Member(ctx context.Context, g *model.Grant) (*model.Member, error) {
	return optional(ctx, loadersOf(ctx).members, g.MemberID, model.WrapMember)
}

// Group is whose members have it.
func (grant) Group(ctx context.Context, g *model.Grant) (*model.Group, error) {
	return optional(ctx, loadersOf(ctx).groups, g.GroupID, model.WrapGroup)
}

// Applications are those that it is limited to.
func (grant) Applications(ctx context.Context, g *model.Grant) ([]model.Application, error) {
	return each(ctx, loadersOf(ctx).applications, g.Applications, model.WrapApplication)
}

// Environments are those that it is limited to.
func (grant) Environments(ctx context.Context, g *model.Grant) ([]model.Environment, error) {
	return each(ctx, loadersOf(ctx).environments, g.Environments, model.WrapEnvironment)
}

// GrantPermissions gives permissions to a member or a group.
func (m mutation) GrantPermissions(ctx context.Context, in model.GrantPermissionsInput) (p model.GrantPayload, err error) {
	l := loadersOf(ctx)
	made, err := m.grant(ctx, in)
	p.Grant, p.Errors, err = outcome(ctx, l.grants, made.ID, model.WrapGrant, err)
	return p, err
}

func (m mutation) grant(ctx context.Context, in model.GrantPermissionsInput) (core.Grant, error) {
	n := access.NewGrant{Permissions: core.PermissionsOf(in.Permissions...), Tiers: in.Tiers, Reason: orEmpty(in.Reason)}
	var err error
	if in.MemberID != nil {
		if n.MemberID, err = number("/memberId", model.KindMember, *in.MemberID); err != nil {
			return core.Grant{}, err
		}
	}
	if in.GroupID != nil {
		if n.GroupID, err = number("/groupId", model.KindGroup, *in.GroupID); err != nil {
			return core.Grant{}, err
		}
	}
	if n.Applications, err = numbers(ctx, m.domain.View, "/applications", in.Applications, applicationNumber); err != nil {
		return core.Grant{}, err
	}
	if n.Environments, err = numbers(ctx, m.domain.View, "/environments", in.Environments, environmentNumber); err != nil {
		return core.Grant{}, err
	}
	return m.domain.Access.GrantPermissions(ctx, loadersOf(ctx).actor, n)
}

// mostNamed is how many names one input may have to be looked up; the core has the bound that counts.
const mostNamed = 1000

// numbers finds objects by identifier or name.
func numbers(
	ctx context.Context, reads view.Reads, field string, all []string, find func(context.Context, view.Reads, string) (int64, error),
) ([]int64, error) {
	if len(all) > mostNamed {
		return nil, fault.InvalidFields(fault.Field{Name: field, Problem: fmt.Sprintf("found %d; expected at most %d", len(all), mostNamed)})
	}
	found := make([]int64, len(all))
	for i, one := range all {
		n, err := find(ctx, reads, one)
		if err != nil {
			return nil, inField(err, fmt.Sprintf("%s/%d", field, i))
		}
		found[i] = n
	}
	return found, nil
}

// RevokeGrant ends a grant.
func (m mutation) RevokeGrant(ctx context.Context, in model.RevokeGrantInput) (p model.GrantPayload, err error) {
	n, err := number("/grantId", model.KindGrant, in.GrantID)
	if err == nil {
		_, err = m.domain.Access.RevokeGrant(ctx, loadersOf(ctx).actor, n, orEmpty(in.Reason))
		err = inField(err, "/grantId")
	}
	p.Grant, p.Errors, err = outcome(ctx, loadersOf(ctx).grants, n, model.WrapGrant, err)
	return p, err
}

// CreateMember adds a person or a machine.
func (m mutation) CreateMember(ctx context.Context, in model.CreateMemberInput) (p model.MemberPayload, err error) {
	l := loadersOf(ctx)
	n := access.NewMember{Name: in.Name, Kind: core.PrincipalUser, Role: in.Role}
	if in.Kind != nil {
		n.Kind = *in.Kind
	}
	made, err := m.domain.Access.CreateMember(ctx, l.actor, n)
	p.Member, p.Errors, err = outcome(ctx, l.members, made.ID, model.WrapMember, err)
	return p, err
}

// SetMemberRole gives a member another role.
func (m mutation) SetMemberRole(ctx context.Context, in model.SetMemberRoleInput) (model.MemberPayload, error) {
	return changeMember(ctx, in.MemberID, func(n int64) (core.Member, error) {
		return m.domain.Access.SetMemberRole(ctx, loadersOf(ctx).actor, n, in.Role)
	})
}

// RemoveMember ends a membership.
func (m mutation) RemoveMember(ctx context.Context, in model.RemoveMemberInput) (model.MemberPayload, error) {
	return changeMember(ctx, in.MemberID, func(n int64) (core.Member, error) {
		return m.domain.Access.RemoveMember(ctx, loadersOf(ctx).actor, n)
	})
}

func changeMember(ctx context.Context, global string, change func(int64) (core.Member, error)) (p model.MemberPayload, err error) {
	n, err := number("/memberId", model.KindMember, global)
	if err == nil {
		_, err = change(n)
		err = inField(err, "/memberId")
	}
	p.Member, p.Errors, err = outcome(ctx, loadersOf(ctx).members, n, model.WrapMember, err)
	return p, err
}

// CreateGroup makes a group with its first members.
func (m mutation) CreateGroup(ctx context.Context, in model.CreateGroupInput) (p model.GroupPayload, err error) {
	l := loadersOf(ctx)
	members, err := memberNumbers(in.Members)
	var made core.Group
	if err == nil {
		made, err = m.domain.Access.CreateGroup(ctx, l.actor, in.Name, members)
	}
	p.Group, p.Errors, err = outcome(ctx, l.groups, made.ID, model.WrapGroup, err)
	return p, err
}

// SetGroupMembers says who belongs to a group.
func (m mutation) SetGroupMembers(ctx context.Context, in model.SetGroupMembersInput) (p model.GroupPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/groupId", model.KindGroup, in.GroupID)
	var members []int64
	if err == nil {
		members, err = memberNumbers(in.Members)
	}
	if err == nil {
		_, err = m.domain.Access.SetGroupMembers(ctx, l.actor, n, members)
		err = inField(err, "/groupId")
	}
	p.Group, p.Errors, err = outcome(ctx, l.groups, n, model.WrapGroup, err)
	return p, err
}

func memberNumbers(globals []string) ([]int64, error) {
	all := make([]int64, len(globals))
	for i, global := range globals {
		n, err := number(fmt.Sprintf("/members/%d", i), model.KindMember, global)
		if err != nil {
			return nil, err
		}
		all[i] = n
	}
	return all, nil
}

// CreateToken makes a token, and shows it this once.
func (m mutation) CreateToken(ctx context.Context, in model.CreateTokenInput) (p model.CreateTokenPayload, err error) {
	l := loadersOf(ctx)
	n := access.NewToken{Name: in.Name, Scopes: core.PermissionsOf(in.Scopes...), CheckKeys: in.CheckKeys}
	if in.LifetimeSeconds != nil {
		// 0 would be taken for "as usual"; the core refuses what is too short, with the bounds.
		n.Lifetime = max(time.Duration(*in.LifetimeSeconds)*time.Second, time.Nanosecond)
	}
	if in.MemberID != nil {
		n.MemberID, err = number("/memberId", model.KindMember, *in.MemberID)
	}
	var made core.AccessToken
	var secret string
	if err == nil {
		made, secret, err = m.domain.Access.CreateToken(ctx, l.actor, n)
		err = inField(err, "/memberId")
	}
	if err == nil {
		p.Token = &secret
	}
	p.AccessToken, p.Errors, err = outcome(ctx, l.tokens, made.ID, model.WrapAccessToken, err)
	return p, err
}

// RevokeToken ends a token at once.
func (m mutation) RevokeToken(ctx context.Context, in model.RevokeTokenInput) (p model.RevokeTokenPayload, err error) {
	l := loadersOf(ctx)
	n, err := number("/tokenId", model.KindAccessToken, in.TokenID)
	if err == nil {
		_, err = m.domain.Access.RevokeToken(ctx, l.actor, n)
		err = inField(err, "/tokenId")
	}
	p.AccessToken, p.Errors, err = outcome(ctx, l.tokens, n, model.WrapAccessToken, err)
	return p, err
}

// ForgeAccounts are those that the viewer may see.
func (q query) ForgeAccounts(ctx context.Context) ([]model.ForgeAccount, error) {
	accounts, err := q.domain.Chats.ForgeAccounts(ctx, loadersOf(ctx).actor)
	all := []model.ForgeAccount{}
	for _, a := range accounts {
		all = append(all, model.WrapForgeAccount(a))
	}
	return all, err
}

// MakeForgeAccountCode makes a code for an account of the viewer.
func (m mutation) MakeForgeAccountCode(
	ctx context.Context, in model.MakeForgeAccountCodeInput,
) (p model.MakeForgeAccountCodePayload, err error) {
	made, err := m.domain.Chats.MakeCode(ctx, loadersOf(ctx).actor, int64(in.Hook), in.Account)
	p.Made, p.Errors, err = changed(made, err, model.WrapForgeCode)
	return p, err
}

// UnlinkForgeAccount ends that an account is a member's.
func (m mutation) UnlinkForgeAccount(ctx context.Context, in model.UnlinkForgeAccountInput) (p model.ForgeAccountPayload, err error) {
	ended, err := m.domain.Chats.UnlinkForge(ctx, loadersOf(ctx).actor, int64(in.Number), orEmpty(in.Reason))
	p.Account, p.Errors, err = changed(ended, err, model.WrapForgeAccount)
	return p, err
}
