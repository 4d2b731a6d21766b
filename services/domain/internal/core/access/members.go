package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// NewMember is one to be added.
type NewMember struct {
	Name string
	Kind core.PrincipalType
	Role core.Role
}

// maxGroup bounds a group.
const maxGroup = 1000

// CreateMember adds a person or a machine.
func (u *UseCases) CreateMember(ctx context.Context, a core.Actor, n NewMember) (core.Member, error) {
	found := checkMemberName(n.Name)
	if n.Kind != core.PrincipalUser && n.Kind != core.PrincipalAgent {
		found = append(found, fault.Field{Name: "/kind", Problem: fmt.Sprintf("found %q; expected user or agent", n.Kind)})
	}
	if found = append(found, checkRole(n.Role)...); len(found) > 0 {
		return core.Member{}, fault.InvalidFields(found...)
	}
	a = a.Proposing(n)
	var made core.Member
	err := core.By(ctx, u.store, a, core.ActionCreateMember, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddMember(ctx, core.Member{Name: n.Name, Kind: n.Kind, Role: n.Role})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "a member named %q exists already", n.Name)
		}
		if err != nil {
			return err
		}
		return noteWider(ctx, tx, a, core.Change{
			Action: core.ActionCreateMember, Subject: core.AccessSubject{Kind: core.AccessMember, ID: made.ID, Name: made.Name},
			Detail: string(made.Role), Wider: &core.Wider{Grants: []core.Grant{{Permissions: made.Role.Permissions()}}},
		}, nil, state{"name": made.Name, "kind": made.Kind, "role": made.Role})
	})
	return made, err
}

// RoleInput is what SetMemberRole is called with.
type RoleInput struct {
	Member int64
	Role   core.Role
}

// SetMemberRole gives a member another role. Its tokens follow at once.
func (u *UseCases) SetMemberRole(ctx context.Context, a core.Actor, member int64, role core.Role) (core.Member, error) {
	if found := checkRole(role); len(found) > 0 {
		return core.Member{}, fault.InvalidFields(found...)
	}
	a = a.Proposing(RoleInput{Member: member, Role: role})
	return u.changeMember(ctx, a, core.ActionSetMemberRole, member, func(m *core.Member) string {
		before := m.Role
		m.Role = role
		return fmt.Sprintf("%s, before %s", role, before)
	})
}

// RemoveMember ends a membership: its tokens are good for nothing from then on, and what it has done stays on record.
func (u *UseCases) RemoveMember(ctx context.Context, a core.Actor, member int64) (core.Member, error) {
	now := u.clock.Now()
	return u.changeMember(ctx, a, core.ActionRemoveMember, member, func(m *core.Member) string {
		m.RemovedAt = &now
		return fmt.Sprintf("before %s", m.Role)
	})
}

// changeMember changes one, unless the organization would be left without an owner. The change says what it is, for the log.
func (u *UseCases) changeMember(
	ctx context.Context, a core.Actor, action core.Action, member int64, change func(*core.Member) string,
) (core.Member, error) {
	var changed core.Member
	err := core.By(ctx, u.store, a, action, func(ctx context.Context, tx Tx) error {
		var detail string
		var before state
		var may core.Permissions
		var err error
		changed, err = changeOne(ctx, tx, member, func(m *core.Member) {
			before, may = memberState(*m), m.Role.Permissions()
			detail = change(m)
		})
		if err != nil {
			return err
		}
		c := core.Change{Action: action, Subject: core.AccessSubject{Kind: core.AccessMember, ID: changed.ID, Name: changed.Name}, Detail: detail}
		if action == core.ActionSetMemberRole {
			c.Wider = &core.Wider{Grants: []core.Grant{{Permissions: changed.Role.Permissions() &^ may}}}
		}
		if err := noteWider(ctx, tx, a, c, before, memberState(changed)); err != nil {
			return err
		}
		return stillConfirmable(ctx, tx, a.Organization)
	})
	return changed, err
}

// memberState is what the journal keeps of a member; nil for one that was removed.
func memberState(m core.Member) state {
	if m.RemovedAt != nil {
		return nil
	}
	return state{"role": m.Role}
}

// changeOne changes a member in a transaction that is under way.
func changeOne(ctx context.Context, tx Tx, member int64, change func(*core.Member)) (core.Member, error) {
	// The owners are locked too, so that of two who leave at the same moment the second sees the first.
	locked, err := tx.LockMembers(ctx, member)
	if err != nil {
		return core.Member{}, err
	}
	i := slices.IndexFunc(locked, func(m core.Member) bool { return m.ID == member })
	if i < 0 {
		return core.Member{}, fault.New(fault.NotFound, "member %d does not exist", member)
	}
	owns := func(m core.Member) bool { return m.Role == core.RoleOwner && m.RemovedAt == nil }
	owned := owns(locked[i])
	change(&locked[i])
	if owned && !slices.ContainsFunc(locked, owns) {
		return core.Member{}, fault.New(fault.Refused, "%q is the only owner; make another member an owner first", locked[i].Name)
	}
	return locked[i], tx.SaveMember(ctx, locked[i])
}

// GroupInput is what CreateGroup is called with, or SetGroupMembers.
type GroupInput struct {
	Group   int64
	Name    string
	Members []int64
}

// CreateGroup makes a group with its first members.
func (u *UseCases) CreateGroup(ctx context.Context, a core.Actor, name string, members []int64) (core.Group, error) {
	if found := append(core.CheckName("/name", name), checkGroupSize(members)...); len(found) > 0 {
		return core.Group{}, fault.InvalidFields(found...)
	}
	var made core.Group
	err := core.By(ctx, u.store, a, core.ActionCreateGroup, func(ctx context.Context, tx Tx) error {
		var err error
		made, err = tx.AddGroup(ctx, core.Group{Name: name})
		if fault.Is(err, fault.Conflict) {
			return fault.Because(err, fault.Conflict, "a group named %q exists already", name)
		}
		if err != nil {
			return err
		}
		return u.setMembers(ctx, tx, a.Proposing(GroupInput{Name: name, Members: members}), core.ActionCreateGroup, made, members)
	})
	return made, err
}

// SetGroupMembers says who belongs to a group from now on.
func (u *UseCases) SetGroupMembers(ctx context.Context, a core.Actor, group int64, members []int64) (core.Group, error) {
	if found := checkGroupSize(members); len(found) > 0 {
		return core.Group{}, fault.InvalidFields(found...)
	}
	var changed core.Group
	err := core.By(ctx, u.store, a, core.ActionSetGroupMembers, func(ctx context.Context, tx Tx) error {
		var err error
		if changed, err = tx.LockGroup(ctx, group); err != nil {
			return err
		}
		return u.setMembers(ctx, tx, a.Proposing(GroupInput{Group: group, Members: members}), core.ActionSetGroupMembers, changed, members)
	})
	return changed, err
}

func (u *UseCases) setMembers(ctx context.Context, tx Tx, a core.Actor, action core.Action, group core.Group, members []int64) error {
	known, err := tx.MembersByID(ctx, a.Organization, members)
	if err != nil {
		return err
	}
	names := make([]string, len(members))
	for i, id := range members {
		if m, ok := known[id]; !ok || m.RemovedAt != nil {
			return fault.InvalidFields(fault.Field{Name: fmt.Sprintf("/members/%d", i), Problem: fmt.Sprintf("member_%d does not exist", id)})
		}
		names[i] = known[id].Name
	}
	all, err := tx.MembersByGroup(ctx, a.Organization, []int64{group.ID})
	if err != nil {
		return err
	}
	var before state
	if action == core.ActionSetGroupMembers {
		was := []string{}
		for _, m := range all[group.ID] {
			was = append(was, m.Name)
		}
		before = state{"members": was}
	}
	if err := tx.SetGroupMembers(ctx, group.ID, members, u.clock.Now()); err != nil {
		return err
	}
	c := core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.AccessGroup, ID: group.ID, Name: group.Name},
		Detail: "members: " + strings.Join(names, " "),
	}
	if slices.ContainsFunc(members, func(id int64) bool {
		return !slices.ContainsFunc(all[group.ID], func(m core.Member) bool { return m.ID == id })
	}) {
		grants, err := tx.GrantsByGroup(ctx, a.Organization, []int64{group.ID})
		if err != nil {
			return err
		}
		c.Wider = &core.Wider{Grants: grants[group.ID], Group: group.Name}
	}
	if err := noteWider(ctx, tx, a, c, before, state{"members": names}); err != nil {
		return err
	}
	return stillConfirmable(ctx, tx, a.Organization)
}

func checkRole(r core.Role) []fault.Field {
	if slices.Contains(core.AllRoles(), r) {
		return nil
	}
	return []fault.Field{{Name: "/role", Problem: fmt.Sprintf("found %q; expected viewer, approver, deployer, maintainer or owner", r)}}
}

// checkMemberName takes what people are called elsewhere, addresses above all, as long as it prints.
func checkMemberName(name string) []fault.Field {
	if len(name) > 0 && len(name) <= 100 && !text.Unsafe(name) && !strings.ContainsFunc(name, unicode.IsSpace) {
		return nil
	}
	return []fault.Field{
		{Name: "/name", Problem: fmt.Sprintf("found %.100q; expected 1 to 100 bytes without spaces, such as alice@example.com", name)},
	}
}

func checkGroupSize(members []int64) []fault.Field {
	if len(members) <= maxGroup {
		return nil
	}
	return []fault.Field{{Name: "/members", Problem: fmt.Sprintf("found %d; expected at most %d", len(members), maxGroup)}}
}
