package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// NewGrant gives permissions to a member or to the members of a group, beside their role.
type NewGrant struct {
	// MemberID or GroupID is who gets it; exactly one of them.
	MemberID, GroupID int64
	Permissions       core.Permissions
	// Applications, Environments and Tiers limit it; an empty one is no limit.
	Applications, Environments []int64
	Tiers                      []core.Tier
	Reason                     string
}

const (
	// maxGrants bounds the grants of one member, or of one group.
	maxGrants = 100
	// maxLimits bounds how many applications or environments one grant names.
	maxLimits = 100
)

func (n NewGrant) check() error {
	var found []fault.Field
	if (n.MemberID == 0) == (n.GroupID == 0) {
		found = append(found, fault.Field{Name: "/memberId", Problem: "found both a member and a group, or neither; expected one of them"})
	}
	for name, size := range map[string]int{"/applications": len(n.Applications), "/environments": len(n.Environments)} {
		if size > maxLimits {
			found = append(found, fault.Field{Name: name, Problem: fmt.Sprintf("found %d; expected at most %d", size, maxLimits)})
		}
	}
	for i, tier := range n.Tiers {
		if !slices.Contains(core.AllTiers(), tier) || slices.Contains(n.Tiers[:i], tier) {
			found = append(found, fault.Field{
				Name:    fmt.Sprintf("/tiers/%d", i),
				Problem: fmt.Sprintf("found %q; expected development, qa, staging or production, each once", tier),
			})
		}
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return core.CheckReason(n.Reason)
}

// checkPermissions is Invalid for permissions that no grant gives.
func (n NewGrant) checkPermissions() error {
	beyond := n.Permissions &^ core.PermissionsOf(core.GrantablePermissions()...)
	if beyond == 0 && n.Permissions != 0 {
		return nil
	}
	words := make([]string, 0, len(core.GrantablePermissions()))
	for _, p := range core.GrantablePermissions() {
		words = append(words, p.String())
	}
	return fault.InvalidFields(fault.Field{Name: "/permissions", Problem: fmt.Sprintf(
		"found %v; expected one or more of %s: everybody may read, and administer comes with the role owner only", n.Permissions.List(),
		strings.Join(words, ", "),
	)})
}

// GrantPermissions gives permissions to a member or a group, everywhere or within limits. Their tokens follow at once, as far as their
// scopes allow it.
func (u *UseCases) GrantPermissions(ctx context.Context, a core.Actor, n NewGrant) (core.Grant, error) {
	n.Applications, n.Environments = core.Distinct(n.Applications), core.Distinct(n.Environments)
	if err := n.check(); err != nil {
		return core.Grant{}, err
	}
	a = a.Proposing(n)
	var made core.Grant
	err := core.By(ctx, u.store, a, core.ActionGrantPermissions, func(ctx context.Context, tx Tx) error {
		holder, err := u.lockHolder(ctx, tx, a.Organization, n)
		if err != nil {
			return err
		}
		g := core.Grant{
			MemberID: n.MemberID, GroupID: n.GroupID, Permissions: n.Permissions, Applications: n.Applications, Environments: n.Environments,
			Tiers: n.Tiers,
		}
		names, err := limitNames(ctx, tx, a.Organization, g)
		if err != nil {
			return err
		}
		if err := n.checkPermissions(); err != nil {
			return err
		}
		if made, err = tx.AddGrant(ctx, g); err != nil {
			return err
		}
		return recordGrant(ctx, tx, a, core.ActionGrantPermissions, made, holder, n.Reason, nil, names.state(made))
	})
	return made, err
}

// RevokeGrant ends a grant at once, for every token of its holders.
func (u *UseCases) RevokeGrant(ctx context.Context, a core.Actor, grant int64, reason string) (core.Grant, error) {
	if err := core.CheckReason(reason); err != nil {
		return core.Grant{}, err
	}
	var revoked core.Grant
	err := core.By(ctx, u.store, a, core.ActionRevokeGrant, func(ctx context.Context, tx Tx) error {
		known, err := tx.GrantsByID(ctx, a.Organization, []int64{grant})
		if err != nil {
			return err
		}
		g, ok := known[grant]
		if !ok {
			return fault.New(fault.NotFound, "grant %d does not exist", grant)
		}
		if revoked = g; g.RevokedAt != nil {
			return nil
		}
		names, err := limitNames(ctx, tx, a.Organization, g)
		if err != nil {
			return err
		}
		holder, err := holderName(ctx, tx, a.Organization, g)
		if err != nil {
			return err
		}
		now := u.clock.Now()
		revoked.RevokedAt = &now
		if err := tx.RevokeGrant(ctx, grant, now); err != nil {
			return err
		}
		if err := recordGrant(ctx, tx, a, core.ActionRevokeGrant, g, holder, reason, names.state(g), nil); err != nil {
			return err
		}
		return stillConfirmable(ctx, tx, a.Organization)
	})
	return revoked, err
}

// lockHolder locks who gets a grant, so that two grants at the same moment are counted one after the other, and answers the name.
func (u *UseCases) lockHolder(ctx context.Context, tx Tx, organization int64, n NewGrant) (string, error) {
	var held []core.Grant
	var name string
	if n.GroupID != 0 {
		g, err := tx.LockGroup(ctx, n.GroupID)
		if err != nil {
			return "", err
		}
		of, err := tx.GrantsByGroup(ctx, organization, []int64{n.GroupID})
		if err != nil {
			return "", err
		}
		held, name = of[n.GroupID], "group "+g.Name
	} else {
		locked, err := tx.LockMembers(ctx, n.MemberID)
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(locked, func(m core.Member) bool { return m.ID == n.MemberID && m.RemovedAt == nil })
		if i < 0 {
			return "", fault.New(fault.NotFound, "member %d does not exist", n.MemberID)
		}
		if m := locked[i]; m.Kind != core.PrincipalUser && n.Permissions.Has(core.MayBreakGlass) {
			return "", fault.InvalidFields(fault.Field{
				Name: "/permissions", Problem: fmt.Sprintf("found break_glass for %s, which is a machine; expected it for people only", m.Name),
			})
		}
		of, err := tx.GrantsByMember(ctx, organization, []int64{n.MemberID})
		if err != nil {
			return "", err
		}
		held = slices.DeleteFunc(slices.Clone(of[n.MemberID]), func(g core.Grant) bool { return g.MemberID == 0 })
		name = locked[i].Name
	}
	if len(held) >= maxGrants {
		return "", fault.New(fault.Refused, "%s has %d grants already, as many as possible; revoke one, or give the role instead", name, len(held))
	}
	return name, nil
}

func holderName(ctx context.Context, tx Tx, organization int64, g core.Grant) (string, error) {
	if g.GroupID != 0 {
		group, err := tx.LockGroup(ctx, g.GroupID)
		return "group " + group.Name, err
	}
	members, err := tx.MembersByID(ctx, organization, []int64{g.MemberID})
	return members[g.MemberID].Name, err
}

// limits are the names of what limits a grant.
type limits struct{ applications, environments []string }

// limitNames finds what limits a grant; Invalid with the fields for what does not exist.
func limitNames(ctx context.Context, tx Tx, organization int64, g core.Grant) (limits, error) {
	var l limits
	var found []fault.Field
	applications, err := tx.ApplicationsByID(ctx, organization, g.Applications)
	if err != nil {
		return l, err
	}
	for i, id := range g.Applications {
		if a, ok := applications[id]; ok {
			l.applications = append(l.applications, a.Name)
		} else {
			found = append(found, fault.Field{Name: fmt.Sprintf("/applications/%d", i), Problem: fmt.Sprintf("application_%d does not exist", id)})
		}
	}
	environments, err := tx.EnvironmentsByID(ctx, organization, g.Environments)
	if err != nil {
		return l, err
	}
	for i, id := range g.Environments {
		if e, ok := environments[id]; ok {
			l.environments = append(l.environments, e.Name)
		} else {
			found = append(found, fault.Field{Name: fmt.Sprintf("/environments/%d", i), Problem: fmt.Sprintf("environment_%d does not exist", id)})
		}
	}
	if len(found) > 0 {
		return l, fault.InvalidFields(found...)
	}
	return l, nil
}

// state is what the journal of changes keeps of a grant.
func (l limits) state(g core.Grant) state {
	words := make([]string, 0, len(g.Permissions.List()))
	for _, p := range g.Permissions.List() {
		words = append(words, p.String())
	}
	return state{
		"permissions": words, "applications": orNone(l.applications), "environments": orNone(l.environments), "tiers": orNone(g.Tiers),
	}
}

func orNone[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func recordGrant(
	ctx context.Context, tx Tx, a core.Actor, action core.Action, g core.Grant, holder, reason string, before, after state,
) error {
	var was, is any
	shown := after
	if before != nil {
		was, shown = before, before
	}
	if after != nil {
		is = after
	}
	words, _ := shown["permissions"].([]string)
	c := core.Change{
		Action: action, Subject: core.AccessSubject{Kind: core.AccessGrant, ID: g.ID, Name: holder}, Reason: reason,
		Detail: strings.Join(words, " "),
	}
	if after != nil {
		c.Wider = &core.Wider{Grants: []core.Grant{g}}
	}
	return core.Record(ctx, tx, a, c, was, is)
}
