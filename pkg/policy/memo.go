package policy

import (
	"sync"

	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// maxRulings is how many rulings a decision has that a Memo keeps.
const maxRulings = 16

// Memo are decisions about calls, for calls that policies cannot distinguish from an earlier one, and which policies may match. It is safe
// for concurrent use, and may be that of several sets. What it keeps is bounded in bytes, whatever programs call.
type Memo struct {
	// most is how many bytes it keeps, about, and used how many those are. It is emptied when it is full.
	most, used int
	mu         sync.RWMutex
	// named are the principals and Functions that the scopes of policies name. The others of a kind are alike to all scopes.
	named map[types.EntityUID]bool
	plans map[planKey]*plan
	known map[memoKey]Decision
}

// planKey is what a plan depends on. Principal and function are empty where no scope names them.
type planKey struct {
	set                 *setID
	kind                types.EntityType
	principal, function types.EntityUID
}

// memoKey is what a decision depends on: the plan has the policies.
type memoKey struct {
	plan *plan
	text string
}

// NewMemo makes a Memo of so many bytes at most.
func NewMemo(most int) *Memo {
	return &Memo{most: most, named: map[types.EntityUID]bool{}, plans: map[planKey]*plan{}, known: map[memoKey]Decision{}}
}

// Remember has the set keep decisions in a memo.
func (s *CallSet) Remember(m *Memo) *CallSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range s.set.levels {
		for _, member := range l.Members {
			if x := member.of(FunctionCall); x != nil {
				m.name(x.all)
			}
		}
	}
	remembering := *s
	remembering.memo = m
	return &remembering
}

// name notes what the scopes of policies name.
func (m *Memo) name(all []*policy) {
	for _, p := range all {
		if scope, is := p.ast().Principal.(xast.ScopeTypeEq); is {
			m.named[scope.Entity] = true
		}
		if scope, is := p.ast().Resource.(xast.ScopeTypeEq); is {
			m.named[scope.Entity] = true
		}
	}
}

// plan finds the policies of a set that may match calls, once for all principals and Functions that no scope distinguishes.
func (m *Memo) plan(s *Set, principal, function types.EntityUID) *plan {
	key := planKey{set: s.id, kind: principal.Type}
	m.mu.RLock()
	if m.named[principal] {
		key.principal = principal
	}
	if m.named[function] {
		key.function = function
	}
	known := m.plans[key]
	m.mu.RUnlock()
	if known != nil {
		return known
	}
	made := s.planOfCalls(principal, function)
	m.mu.Lock()
	defer m.mu.Unlock()
	if known = m.plans[key]; known != nil {
		return known
	}
	if m.room(made.size()) {
		m.plans[key] = made
	}
	return made
}

func (m *Memo) get(p *plan, key []byte) (Decision, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, known := m.known[memoKey{p, string(key)}]
	return d, known
}

// put keeps a decision, unless it is a large one or cannot be repeated.
func (m *Memo) put(p *plan, key []byte, d Decision) {
	if d.failed() || len(d.Rulings) > maxRulings {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := memoKey{p, string(key)}
	if _, known := m.known[kept]; !known && m.room(decisionSize+len(key)+cap(d.Rulings)*rulingSize) {
		m.known[kept] = d
	}
}

// room makes room for so many bytes, and takes it; false if there is never as much. Decisions keep their plans in memory, so both are
// emptied at once.
func (m *Memo) room(size int) bool {
	if size > m.most {
		return false
	}
	if m.used += size; m.used > m.most {
		m.plans, m.known, m.used = map[planKey]*plan{}, map[memoKey]Decision{}, size
	}
	return true
}
