package policy

import (
	"sync"

	"github.com/cedar-policy/cedar-go/types"
)

// maxPlans is how many plans of one Set are kept. They are made anew after that.
const maxPlans = 1000

// plan are the policies of a Set that may match requests with one principal, action and resource.
type plan struct {
	// lists has those of each member, level after level.
	lists []candidates
	// reads is what they ask of a call besides that.
	reads reads
}

// plans are those that a Set has made. They are safe for concurrent use.
type plans struct {
	mu    sync.RWMutex
	known map[planKey]*plan
}

type planKey struct {
	action              Action
	principal, resource types.EntityUID
}

// plan finds the policies that may match, once for each principal, action and resource.
func (s *Set) plan(action Action, principal, resource types.EntityUID) *plan {
	key := planKey{action, principal, resource}
	s.plans.mu.RLock()
	known := s.plans.known[key]
	s.plans.mu.RUnlock()
	if known != nil {
		return known
	}
	made := &plan{}
	for _, l := range s.levels {
		for _, m := range l.Members {
			list := m.of(action).candidates(principal, actionUID(action), resource)
			made.lists = append(made.lists, list)
			if action == FunctionCall {
				made.reads.add(list, m.Zone)
			}
		}
	}
	made.reads.sort()
	s.plans.mu.Lock()
	defer s.plans.mu.Unlock()
	if known = s.plans.known[key]; known != nil {
		return known
	}
	if s.plans.known == nil || len(s.plans.known) >= maxPlans {
		s.plans.known = map[planKey]*plan{}
	}
	s.plans.known[key] = made
	return made
}
