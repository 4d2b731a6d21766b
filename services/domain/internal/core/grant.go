package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Target is where an action has its effect: an application in an environment. A zero ApplicationID is all applications, and a zero
// EnvironmentID all environments, of the tier if there is one.
type Target struct {
	ApplicationID, EnvironmentID int64
	// Environment is the name of the environment, for messages; it may be empty.
	Environment string
	Tier        Tier
}

// String is the target for people.
func (t Target) String() string {
	switch {
	case t.Environment != "":
		return fmt.Sprintf("environment %q", t.Environment)
	case t.EnvironmentID != 0:
		return fmt.Sprintf("environment_%d", t.EnvironmentID)
	case t.Tier != "":
		return fmt.Sprintf("tier %s", t.Tier)
	default:
		return "all environments"
	}
}

// AllTiers are all tiers, the least first.
func AllTiers() []Tier { return []Tier{TierDevelopment, TierQA, TierStaging, TierProduction} }

// Grant gives a member, or the members of a group, permissions beside their role, limited to applications, environments and tiers (D50). A
// limit that is empty is none; a target has to be within every limit.
type Grant struct {
	ID int64
	// MemberID or GroupID is who has it; the other one is 0.
	MemberID, GroupID          int64
	Permissions                Permissions
	Applications, Environments []int64
	Tiers                      []Tier
	CreatedAt                  time.Time
	// RevokedAt is nil for a grant that is in force.
	RevokedAt *time.Time
}

// GrantablePermissions are those that a grant may give. Everybody may read, and to administer has no limits.
func GrantablePermissions() []Permission {
	return slices.DeleteFunc(AllPermissions(), func(p Permission) bool { return p == MayRead || p == MayAdminister })
}

// Covers reports whether a target is within the limits of the grant. What concerns all applications or all environments
// is covered only by a grant without that limit.
func (g Grant) Covers(t Target) bool {
	return (len(g.Applications) == 0 || slices.Contains(g.Applications, t.ApplicationID)) &&
		(len(g.Environments) == 0 || slices.Contains(g.Environments, t.EnvironmentID)) &&
		(len(g.Tiers) == 0 || slices.Contains(g.Tiers, t.Tier))
}

// ActorOf is a member as an actor with everything that its role and its grants allow, as no token limits it.
func ActorOf(organization int64, m Member, grants []Grant, groups []Group) Actor {
	a := Actor{Organization: organization, Type: m.Kind, ID: m.ID, Name: m.Name, Permissions: m.Role.Permissions(), Grants: grants}
	for _, g := range groups {
		a.Groups = append(a.Groups, g.Name)
	}
	return a
}

// LimitedTo is the actor with only those permissions, in its role as in its grants.
func (a Actor) LimitedTo(scopes Permissions) Actor {
	a.Permissions &= scopes
	limited := make([]Grant, 0, len(a.Grants))
	for _, g := range a.Grants {
		if g.Permissions &= scopes; g.Permissions != 0 {
			limited = append(limited, g)
		}
	}
	a.Grants = limited
	return a
}

// MayReportKey is nil when the actor may report the status of checks with a key, as far as the key goes: a token may be bound to some.
func (a Actor) MayReportKey(key string) error {
	if len(a.CheckKeys) == 0 || slices.Contains(a.CheckKeys, key) {
		return nil
	}
	return fault.New(fault.Denied, "the token reports only the checks %s; found %q", strings.Join(a.CheckKeys, ", "), key)
}

// Somewhere are the permissions that the actor has in at least one place.
func (a Actor) Somewhere() Permissions {
	all := a.Permissions
	for _, g := range a.Grants {
		all |= g.Permissions
	}
	return all
}

// HasIn reports whether the actor has a permission in a target: everywhere by its role, or there by a grant.
func (a Actor) HasIn(p Permission, t Target) bool {
	return a.Permissions.Has(p) || slices.ContainsFunc(a.Grants, func(g Grant) bool { return g.Permissions.Has(p) && g.Covers(t) })
}

// MaySomewhere is nil when the actor may perform an action in at least one place. A use case asks this before it knows where, and MayIn
// once it does.
func (a Actor) MaySomewhere(action Action) error {
	needed, known := permissionFor(action)
	if known && !a.Permissions.Has(needed) && a.Somewhere().Has(needed) {
		a.Permissions |= Permissions(needed)
	}
	return a.May(action)
}

// MayIn is nil when the actor may perform an action in every one of some targets; without a target, everywhere. Use cases, viewerCan and
// queued requests all ask here (D50).
func (a Actor) MayIn(action Action, targets ...Target) error {
	if a.May(action) == nil {
		return nil
	}
	if err := a.MaySomewhere(action); err != nil {
		return err
	}
	needed, _ := permissionFor(action)
	if len(targets) == 0 {
		targets = []Target{{}}
	}
	var missing []string
	for _, t := range targets {
		if !a.HasIn(needed, t) && !slices.Contains(missing, t.String()) {
			missing = append(missing, t.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.New(
		fault.Denied, "%s needs the permission %q in %s; what you have is limited to other applications, environments or tiers",
		action, needed, strings.Join(missing, ", "),
	)
}

// GrantReads finds grants that are in force.
type GrantReads interface {
	// GrantsByMember are those of members, and those of the groups that they belong to.
	GrantsByMember(ctx context.Context, organization int64, members []int64) (map[int64][]Grant, error)
}

// TargetReads finds where an application goes.
type TargetReads interface {
	ApplicationEnvironmentsByApplication(
		ctx context.Context, organization int64, applications []int64,
	) (map[int64][]ApplicationEnvironment, error)
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]Environment, error)
}

// ApplicationTargets are the environments that an application goes to; with no pipeline, the application in all environments.
func ApplicationTargets(ctx context.Context, r TargetReads, organization, application int64) ([]Target, error) {
	places, err := r.ApplicationEnvironmentsByApplication(ctx, organization, []int64{application})
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(places[application]))
	for i, ae := range places[application] {
		ids[i] = ae.EnvironmentID
	}
	environments, err := r.EnvironmentsByID(ctx, organization, ids)
	return TargetsIn(application, ids, environments), err
}

// TargetsIn are targets of an application, one for each environment in their order; without one, the application in all of them.
func TargetsIn(application int64, ids []int64, environments map[int64]Environment) []Target {
	if len(ids) == 0 {
		return []Target{{ApplicationID: application}}
	}
	all := make([]Target, len(ids))
	for i, id := range ids {
		all[i] = environments[id].Target(application)
	}
	return all
}

// Target is an application in the environment; 0 for all applications.
func (e Environment) Target(application int64) Target {
	return Target{ApplicationID: application, EnvironmentID: e.ID, Environment: e.Name, Tier: e.Tier}
}
