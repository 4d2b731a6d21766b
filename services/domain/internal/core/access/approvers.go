package access

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Anybody stands for all members of the organization where questions are for groups.
const Anybody = ""

// enoughApprovers is more than any question can need: its quorum, those who have answered, and those who may not.
const enoughApprovers = 3 * core.MaxQuorum

// ApproverReads finds who may approve.
type ApproverReads interface {
	core.GrantReads
	MembersByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Member, error)
	GroupByName(ctx context.Context, organization int64, name string) (core.Group, error)
	MembersByGroup(ctx context.Context, organization int64, groups []int64) (map[int64][]core.Member, error)
	// PeopleWithRoles are people, no machines, who have one of some roles and have not been removed, by number: at most so many.
	PeopleWithRoles(ctx context.Context, organization int64, roles []core.Role, most int) ([]int64, error)
	// PeopleWithGrants are people who have a permission by a grant, wherever it is limited to, by number: at most so many.
	PeopleWithGrants(ctx context.Context, organization int64, p core.Permission, most int) ([]int64, error)
}

// Approvers are the members who may approve somewhere, by the group whose gates they answer; no key for a group that does not exist.
type Approvers map[string][]core.Actor

// In are the members who may approve in all of some targets, by number.
func (a Approvers) In(targets ...core.Target) map[string][]int64 {
	return a.where(func(one core.Actor) bool {
		return !slices.ContainsFunc(targets, func(t core.Target) bool { return !one.HasIn(core.MayApprove, t) })
	})
}

// InAny are the members who may approve in an environment for at least one application, by number.
func (a Approvers) InAny(e core.Environment) map[string][]int64 {
	return a.Of(e).ids()
}

// Of are the approvers who may approve in an environment for at least one application.
func (a Approvers) Of(e core.Environment) Approvers {
	return a.only(func(one core.Actor) bool {
		return one.Permissions.Has(core.MayApprove) || slices.ContainsFunc(one.Grants, func(g core.Grant) bool {
			g.Applications = nil
			return g.Permissions.Has(core.MayApprove) && g.Covers(e.Target(0))
		})
	})
}

func (a Approvers) where(counts func(core.Actor) bool) map[string][]int64 {
	return a.only(counts).ids()
}

// only are those of the approvers who count.
func (a Approvers) only(counts func(core.Actor) bool) Approvers {
	found := make(Approvers, len(a))
	for group, all := range a {
		found[group] = []core.Actor{}
		for _, one := range all {
			if counts(one) {
				found[group] = append(found[group], one)
			}
		}
	}
	return found
}

// ids are the numbers of the approvers.
func (a Approvers) ids() map[string][]int64 {
	found := make(map[string][]int64, len(a))
	for group, all := range a {
		found[group] = make([]int64, len(all))
		for i, one := range all {
			found[group][i] = one.ID
		}
	}
	return found
}

// ApproversOf are the members who may approve, by group, of those names that a group has; of anybody's as many as can matter.
func ApproversOf(ctx context.Context, r ApproverReads, organization int64, names []string) (Approvers, error) {
	groups, members := map[string]int64{}, map[string][]core.Member{}
	for _, name := range names {
		if name == Anybody {
			all, err := anybody(ctx, r, organization, core.MayApprove)
			if err != nil {
				return nil, err
			}
			members[Anybody] = all
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
	if len(groups) > 0 {
		of, err := r.MembersByGroup(ctx, organization, slices.Collect(maps.Values(groups)))
		if err != nil {
			return nil, err
		}
		for name, id := range groups {
			members[name] = of[id]
		}
	}
	var ids []int64
	for _, all := range members {
		for _, m := range all {
			ids = append(ids, m.ID)
		}
	}
	grants, err := r.GrantsByMember(ctx, organization, core.Distinct(ids))
	found := make(Approvers, len(members))
	for name, all := range members {
		found[name] = []core.Actor{}
		for _, m := range all {
			if a := core.ActorOf(organization, m, grants[m.ID], nil); m.RemovedAt == nil && a.Somewhere().Has(core.MayApprove) {
				found[name] = append(found[name], a)
			}
		}
	}
	return found, err
}

// anybody are people who have a permission somewhere, by their role or by a grant.
func anybody(ctx context.Context, r ApproverReads, organization int64, p core.Permission) ([]core.Member, error) {
	ids, err := r.PeopleWithRoles(ctx, organization, core.RolesWith(p), enoughApprovers)
	if err != nil {
		return nil, err
	}
	granted, err := r.PeopleWithGrants(ctx, organization, p, enoughApprovers)
	if err != nil {
		return nil, err
	}
	ids = core.Distinct(append(ids, granted...))
	known, err := r.MembersByID(ctx, organization, ids)
	all := make([]core.Member, 0, len(ids))
	for _, id := range ids {
		all = append(all, known[id])
	}
	return all, err
}

// Confirmable refuses to leave an environment under change control, or to put it there, with fewer than two people who may configure it:
// nobody could confirm what the other one proposes, not even that change control ends.
func Confirmable(ctx context.Context, r ApproverReads, organization int64, environments ...core.Environment) error {
	people, err := anybody(ctx, r, organization, core.MayConfigure)
	if err != nil {
		return err
	}
	ids := make([]int64, len(people))
	for i, m := range people {
		ids[i] = m.ID
	}
	grants, err := r.GrantsByMember(ctx, organization, ids)
	if err != nil {
		return err
	}
	for _, e := range environments {
		count := 0
		for _, m := range people {
			if core.ActorOf(organization, m, grants[m.ID], nil).HasIn(core.MayConfigure, e.Target(0)) {
				count++
			}
		}
		if count < 2 {
			return fault.New(
				fault.Refused, "change control of environment %q takes two people who may configure it, so that one confirms what the other proposes; "+
					"this would leave %d", e.Name, count,
			)
		}
	}
	return nil
}

// stillConfirmable is Confirmable for every environment under change control, after something was taken away.
func stillConfirmable(ctx context.Context, tx Tx, organization int64) error {
	controlled, err := tx.ControlledEnvironments(ctx)
	if err != nil || len(controlled) == 0 {
		return err
	}
	environments := make([]core.Environment, 0, len(controlled))
	for _, id := range slices.Sorted(maps.Keys(controlled)) {
		if e := controlled[id]; e.ArchivedAt == nil {
			environments = append(environments, e)
		}
	}
	return Confirmable(ctx, tx, organization, environments...)
}

// UnanswerableRule is Unanswerable for every requirement of a rule. Where a rule also needs people, those of its groups count.
func UnanswerableRule(rule core.GateRule, approvers Approvers) []fault.Field {
	groups := rule.Groups()
	for _, one := range rule.Requirements() {
		if one.Group != Anybody || len(groups) == 0 {
			if found := Unanswerable(one.Group, one.Quorum, approvers.ids()); len(found) > 0 {
				return found
			}
			continue
		}
		people := map[int64]bool{}
		for _, group := range groups {
			for _, a := range approvers[group] {
				if a.Type == core.PrincipalUser {
					people[a.ID] = true
				}
			}
		}
		if len(people) < one.Quorum {
			return []fault.Field{{Name: "/quorum", Problem: fmt.Sprintf(
				"found %d; expected at most %d, as no more people of the groups %q may approve", one.Quorum, len(people), groups,
			)}}
		}
	}
	return nil
}

// Unanswerable finds why a question could never be answered, as JSON pointers into the rules of the question: there is no such group, or
// too few of those whom it is for may approve. The approvers are those of approversOf. One owner, who may approve, there always is.
func Unanswerable(group string, quorum int, approvers map[string][]int64) []fault.Field {
	quorum = max(quorum, 1)
	all, exists := approvers[group]
	switch n := len(all); {
	case group == Anybody && (quorum == 1 || n >= quorum):
		return nil
	case group == Anybody:
		return []fault.Field{{Name: "/quorum", Problem: fmt.Sprintf(
			"found %d; expected at most %d, as no more people of the organization may approve", quorum, max(n, 1),
		)}}
	case !exists:
		return []fault.Field{{Name: "/group", Problem: fmt.Sprintf("found %q; expected a group that exists", group)}}
	case n < quorum:
		return []fault.Field{
			{Name: "/quorum", Problem: fmt.Sprintf("found %d; expected at most %d, as no more members of group %q may approve", quorum, n, group)},
		}
	}
	return nil
}

// At are the approvers who may approve in all of some targets.
func (a Approvers) At(targets ...core.Target) Approvers {
	return a.only(func(one core.Actor) bool {
		return !slices.ContainsFunc(targets, func(t core.Target) bool { return !one.HasIn(core.MayApprove, t) })
	})
}

// OnlyRequester reports whether a rule that excludes the requester could be satisfied only by the requester, whichever
// of some members that is: all who may request a rollout are needed as approvers.
func OnlyRequester(rule core.GateRule, approvers Approvers, requesters []int64) bool {
	if rule.RequesterMayApprove || len(requesters) == 0 {
		return false
	}
	for _, requester := range requesters {
		others := approvers.only(func(one core.Actor) bool { return one.ID != requester })
		if enough(rule, others) {
			return false
		}
	}
	return true
}

// Given reports whether approvers can satisfy a rule, without the requester where the rule excludes it.
func Given(rule core.GateRule, approvers Approvers, requester core.Principal) bool {
	if rule.RequesterMayApprove {
		return enough(rule, approvers)
	}
	return enough(rule, approvers.only(func(one core.Actor) bool { return one.Principal() != requester }))
}

// enough reports whether the approvers could satisfy every requirement of a rule. Unlike UnanswerableRule it counts
// also where one member is enough: nobody takes the place of the only owner who has requested the rollout.
func enough(rule core.GateRule, approvers Approvers) bool {
	if len(UnanswerableRule(rule, approvers)) > 0 {
		return false
	}
	return rule.Group != Anybody || len(approvers[Anybody]) >= max(rule.Quorum, 1)
}
