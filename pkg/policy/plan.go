package policy

import "github.com/cedar-policy/cedar-go/types"

// plan are the policies of a Set that may match requests with one principal, action and resource.
type plan struct {
	// lists has those of each member, level after level.
	lists []candidates
	// reads is what they ask of a call besides that; only in a Memo.
	reads reads
}

// setID identifies a Set, so that what refers to it does not keep it in memory.
type setID struct{ _ byte }

// plan finds the policies that may match.
func (s *Set) plan(action Action, principal, resource types.EntityUID) *plan {
	made := &plan{}
	for _, l := range s.levels {
		for _, m := range l.Members {
			made.lists = append(made.lists, m.of(action).candidates(principal, actionUID(action), resource))
		}
	}
	return made
}

// planOfCalls is a plan with what its policies ask of a call.
func (s *Set) planOfCalls(principal, function types.EntityUID) *plan {
	made := s.plan(FunctionCall, principal, function)
	lists := made.lists
	for _, l := range s.levels {
		for i, m := range l.Members {
			for _, p := range lists[i] {
				made.reads.add(p.asks, m.Zone)
			}
		}
		lists = lists[len(l.Members):]
	}
	made.reads.sort()
	return made
}

// Sizes in bytes of what a Memo keeps, with the room that maps and allocations take beyond it.
const (
	planSize, listSize, literalSize, timeSize = 512, 64, 112, 48
	decisionSize, rulingSize                  = 448, 128
)

// size is about how much memory a plan takes. The texts are those of the policies, and are not copied.
func (p *plan) size() int {
	n := planSize + (len(p.reads.literals)+len(p.reads.named))*literalSize + cap(p.reads.times)*timeSize
	for _, list := range p.lists {
		n += listSize + 8*cap(list)
	}
	return n
}
