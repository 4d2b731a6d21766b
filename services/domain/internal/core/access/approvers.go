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

// enoughApprovers is more than any question can need: its quorum, those who have answered, and whoever may not.
const enoughApprovers = 3 * core.MaxQuorum

// ApproverReads finds who may approve.
type ApproverReads interface {
	GroupByName(ctx context.Context, organization int64, name string) (core.Group, error)
	MembersByGroup(ctx context.Context, organization int64, groups []int64) (map[int64][]core.Member, error)
	// PeopleWithRoles are people, no machines, who have one of some roles and have not been removed, by number: at most so many.
	PeopleWithRoles(ctx context.Context, organization int64, roles []core.Role, most int) ([]int64, error)
}

// ApproversOf are the members who may approve, by group, of those names that a group has; of anybody's as many as can matter.
func ApproversOf(ctx context.Context, r ApproverReads, organization int64, names []string) (map[string][]int64, error) {
	groups, found := map[string]int64{}, map[string][]int64{}
	for _, name := range names {
		if name == Anybody {
			all, err := r.PeopleWithRoles(ctx, organization, core.RolesWith(core.MayApprove), enoughApprovers)
			if err != nil {
				return nil, err
			}
			found[Anybody] = all
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
			if m.RemovedAt == nil && m.Role.Permissions().Has(core.MayApprove) {
				found[name] = append(found[name], m.ID)
			}
		}
	}
	return found, err
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
