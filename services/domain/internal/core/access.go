package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
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
	// SignIn is whether a sign-in made it: nobody can show it, and it ends with the session that began with it.
	SignIn bool
	// ProviderSession is the identity provider's name of the session that a sign-in there belongs to; empty where it gave none.
	ProviderSession string
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

// maxGroup bounds a group.
const maxGroup = 1000

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
		if err != nil {
			return err
		}
		return a.note(ctx, tx, ActionCreateMember, AccessSubject{AccessMember, made.ID, made.Name}, string(made.Role))
	})
	return made, err
}

// SetMemberRole gives a member another role. Its tokens follow at once.
func (d *Domain) SetMemberRole(ctx context.Context, a Actor, member int64, role Role) (Member, error) {
	if found := checkRole(role); len(found) > 0 {
		return Member{}, fault.InvalidFields(found...)
	}
	return d.changeMember(ctx, a, ActionSetMemberRole, member, func(m *Member) string {
		before := m.Role
		m.Role = role
		return fmt.Sprintf("%s, before %s", role, before)
	})
}

// RemoveMember ends a membership: its tokens are good for nothing from then on, and what it has done stays on record.
func (d *Domain) RemoveMember(ctx context.Context, a Actor, member int64) (Member, error) {
	now := d.clock.Now()
	return d.changeMember(ctx, a, ActionRemoveMember, member, func(m *Member) string {
		m.RemovedAt = &now
		return fmt.Sprintf("before %s", m.Role)
	})
}

// changeMember changes one, unless the organization would be left without an owner. The change says what it is, for the log.
func (d *Domain) changeMember(ctx context.Context, a Actor, action Action, member int64, change func(*Member) string) (Member, error) {
	var changed Member
	err := d.by(ctx, a, action, func(ctx context.Context, tx Tx) error {
		var detail string
		var err error
		changed, err = changeOne(ctx, tx, member, func(m *Member) { detail = change(m) })
		if err != nil {
			return err
		}
		return a.note(ctx, tx, action, AccessSubject{AccessMember, changed.ID, changed.Name}, detail)
	})
	return changed, err
}

// changeOne changes a member in a transaction that is under way.
func changeOne(ctx context.Context, tx Tx, member int64, change func(*Member)) (Member, error) {
	// The owners are locked too, so that of two who leave at the same moment the second sees the first.
	locked, err := tx.LockMembers(ctx, member)
	if err != nil {
		return Member{}, err
	}
	i := slices.IndexFunc(locked, func(m Member) bool { return m.ID == member })
	if i < 0 {
		return Member{}, fault.New(fault.NotFound, "member %d does not exist", member)
	}
	owns := func(m Member) bool { return m.Role == RoleOwner && m.RemovedAt == nil }
	owned := owns(locked[i])
	change(&locked[i])
	if owned && !slices.ContainsFunc(locked, owns) {
		return Member{}, fault.New(fault.Refused, "%q is the only owner; make somebody else an owner first", locked[i].Name)
	}
	return locked[i], tx.SaveMember(ctx, locked[i])
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
		return d.setMembers(ctx, tx, a, ActionCreateGroup, made, members)
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
		return d.setMembers(ctx, tx, a, ActionSetGroupMembers, changed, members)
	})
	return changed, err
}

func (d *Domain) setMembers(ctx context.Context, tx Tx, a Actor, action Action, group Group, members []int64) error {
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
	if err := tx.SetGroupMembers(ctx, group.ID, members, d.clock.Now()); err != nil {
		return err
	}
	return a.note(ctx, tx, action, AccessSubject{AccessGroup, group.ID, group.Name}, "members: "+strings.Join(names, " "))
}

// anybody stands for all members of the organization where questions are for groups.
const anybody = ""

// enoughApprovers is more than any question can need: its quorum, those who have answered, and whoever may not.
const enoughApprovers = 3 * maxQuorum

// approversOf are the members who may approve, by group, of those names that a group has; of anybody's as many as can matter.
func approversOf(ctx context.Context, r Reads, organization int64, names []string) (map[string][]int64, error) {
	groups, found := map[string]int64{}, map[string][]int64{}
	for _, name := range names {
		if name == anybody {
			all, err := r.MembersWithRoles(ctx, organization, rolesWith(MayApprove), enoughApprovers)
			if err != nil {
				return nil, err
			}
			found[anybody] = all
			continue
		}
		g, err := r.GroupByName(ctx, organization, name)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		groups[name] = g.ID
	}
	if len(groups) == 0 {
		return found, nil
	}
	members, err := r.MembersByGroup(ctx, organization, slices.Collect(maps.Values(groups)))
	for name, id := range groups {
		found[name] = []int64{}
		for _, m := range members[id] {
			if m.RemovedAt == nil && m.Role.Permissions().Has(MayApprove) {
				found[name] = append(found[name], m.ID)
			}
		}
	}
	return found, err
}

// unanswerable finds why a question could never be answered, as JSON pointers into the rules of the question: there is no such group, or
// too few of those whom it is for may approve. The approvers are those of approversOf. One owner, who may approve, there always is.
func unanswerable(group string, quorum int, approvers map[string][]int64) []fault.Field {
	quorum = max(quorum, 1)
	all, exists := approvers[group]
	switch n := len(all); {
	case group == anybody && (quorum == 1 || n >= quorum):
		return nil
	case group == anybody:
		return []fault.Field{{Name: "/quorum", Problem: fmt.Sprintf("found %d; expected at most %d, as no more members of the organization may approve", quorum, max(n, 1))}}
	case !exists:
		return []fault.Field{{Name: "/group", Problem: fmt.Sprintf("found %q; expected a group that exists", group)}}
	case n < quorum:
		return []fault.Field{{Name: "/quorum", Problem: fmt.Sprintf("found %d; expected at most %d, as no more members of group %q may approve", quorum, n, group)}}
	}
	return nil
}

func checkRole(r Role) []fault.Field {
	if slices.Contains(AllRoles(), r) {
		return nil
	}
	return []fault.Field{{Name: "/role", Problem: fmt.Sprintf("found %q; expected viewer, approver, deployer, maintainer or owner", r)}}
}

// checkMemberName takes what people are called elsewhere, addresses above all, as long as it prints.
func checkMemberName(name string) []fault.Field {
	if len(name) > 0 && len(name) <= 100 && !text.Unsafe(name) && !strings.ContainsFunc(name, unicode.IsSpace) {
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
