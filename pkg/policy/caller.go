package policy

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"github.com/cedar-policy/cedar-go/types"
)

// Caller is a run that calls Functions, so that what its calls have in common is made ready once. It is safe for concurrent use.
type Caller struct {
	common Call
	// key is all of that but Run, which few policies ask for.
	key   string
	world func() (*world, error)
}

// NewCaller makes a run ready. Of the call, that counts which does not differ from one call to the next.
func NewCaller(c Call) *Caller {
	c.Function, c.Arguments, c.At, c.Given = "", nil, time.Time{}, nil
	keyed := c
	keyed.Run = ""
	encoded, err := json.Marshal(keyed)
	// Bytes that are not UTF-8 are encoded alike. Without a key, nothing is remembered.
	if err != nil || bytes.Contains(encoded, []byte(`\ufffd`)) {
		encoded = nil
	}
	return &Caller{common: c, key: string(encoded), world: sync.OnceValues(c.world)}
}

// Call is a call of the run as it is kept with a decision: without what may be a secret.
func (c *Caller) Call(function string, args json.RawMessage, at time.Time, given []string) Call {
	call := c.common
	call.Function, call.Arguments, call.At, call.Given = function, WithoutSecrets(args), at, given
	return call
}

func (c *Caller) principal() types.EntityUID {
	return types.NewEntityUID(types.EntityType(c.common.Principal.Kind), types.String(c.common.Principal.ID))
}

// DecideFor decides about a call of a run as Decide does about Caller.Call.
func (s *CallSet) DecideFor(c *Caller, function string, args json.RawMessage, at time.Time, given []string) Decision {
	if s.Empty() {
		return Decision{Verdict: Allow}
	}
	values, err := decode(args)
	if err != nil {
		return s.set.failed(err)
	}
	conceal(values)
	seen := &arguments{}
	if err := seen.read(values); err != nil {
		return s.set.failed(err)
	}
	return s.decide(c, function, seen, at, given)
}

// decide answers what was decided about a call that policies cannot distinguish from this one, or evaluates them.
func (s *CallSet) decide(c *Caller, name string, seen *arguments, at time.Time, given []string) Decision {
	p := s.set.plan(FunctionCall, c.principal(), function(name))
	var space [256]byte
	key, ok := p.reads.key(space[:0], c, seen, at)
	ok = ok && len(given) == 0 && s.memo != nil
	if ok {
		if d, known := s.memo.get(p, key); known {
			return d
		}
	}
	common, err := c.world()
	if err != nil {
		return s.set.failed(err)
	}
	d := s.set.decide(common.with(name, seen, at), given, p)
	if ok && !d.failed() {
		s.memo.put(p, string(key), d)
	}
	return d
}

// failed reports whether a policy could not be evaluated. What it says of that may depend on anything.
func (d Decision) failed() bool {
	for _, r := range d.Rulings {
		if r.Failed {
			return true
		}
	}
	return false
}

// Memo are decisions about calls, for calls that policies cannot distinguish from an earlier one. It is safe for concurrent use, and may
// be that of several sets.
type Memo struct {
	most  int
	mu    sync.RWMutex
	known map[memoKey]Decision
}

// memoKey is what a decision depends on: the plan has the principal, the Function and the policies.
type memoKey struct {
	plan *plan
	text string
}

// NewMemo makes a Memo of so many decisions at most. It is emptied when it is full.
func NewMemo(most int) *Memo { return &Memo{most: most} }

func (m *Memo) get(p *plan, key []byte) (Decision, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, known := m.known[memoKey{p, string(key)}]
	return d, known
}

func (m *Memo) put(p *plan, key string, d Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= m.most {
		m.known = map[memoKey]Decision{}
	}
	m.known[memoKey{p, key}] = d
}

// Remember has the set keep decisions in a memo.
func (s *CallSet) Remember(m *Memo) *CallSet {
	remembering := *s
	remembering.memo = m
	return &remembering
}
