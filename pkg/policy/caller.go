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
	if s.memo == nil {
		return s.evaluate(c, name, seen, at, given, s.set.plan(FunctionCall, c.principal(), function(name)))
	}
	p := s.memo.plan(&s.set, c.principal(), function(name))
	if len(given) > 0 {
		return s.evaluate(c, name, seen, at, given, p)
	}
	var space [256]byte
	key, ok := p.reads.key(space[:0], c, name, seen, at)
	if !ok {
		return s.evaluate(c, name, seen, at, given, p)
	}
	if d, known := s.memo.get(p, key); known {
		return d
	}
	d := s.evaluate(c, name, seen, at, given, p)
	s.memo.put(p, key, d)
	return d
}

// evaluate evaluates the policies of a plan.
func (s *CallSet) evaluate(c *Caller, name string, seen *arguments, at time.Time, given []string, p *plan) Decision {
	common, err := c.world()
	if err != nil {
		return s.set.failed(err)
	}
	return s.set.decide(common.with(name, seen, at), given, p)
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
