package policy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

// Policies about calls of Functions are apart from those about rollouts: they have a schema of their own, and concern nothing else. A
// policy is about calls if its scope names function.call, and then it names nothing else. So a policy that names no action means what it
// meant before calls were decided.

// CallSchema is what policies about calls may speak of, in Cedar's own syntax.
//
//go:embed calls.cedarschema
var CallSchema string

// strictCalls is the validator of CallSchema.
var strictCalls = sync.OnceValues(func() (*validate.Validator, error) { //nolint:gochecknoglobals // made once, and never changed
	return validatorOf("calls.cedarschema", CallSchema)
})

const (
	// maxArgument is how long an argument is that policies see, in bytes.
	maxArgument = 4096
	// maxArguments is how many there are, those of objects and lists included.
	maxArguments = 1000
)

// Call is a call of a Function that a decision is about.
type Call struct {
	Principal Principal `json:"principal"`
	Function  string    `json:"function"`
	// Run is the run that calls it.
	Run string `json:"run"`
	// Application and Environments are those of the rollout that the run belongs to; empty for none.
	Application  string        `json:"application,omitempty"`
	Environments []Environment `json:"environments,omitempty"`
	// Arguments is a JSON object without secrets.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	At        time.Time       `json:"at"`
	// Given are the required approvals (Ruling.Approval) that have been given.
	Given []string `json:"given,omitempty"`
}

// world makes the entities and the context that all calls of a run have in common.
func (c Call) world() (*world, error) {
	w := &world{entities: types.EntityMap{}, calls: true}
	var err error
	if w.base.Principal, err = w.principal(c.Principal); err != nil {
		return nil, err
	}
	w.base.Action = actionUID(FunctionCall)
	w.context = cedar.RecordMap{"run": types.String(c.Run), "environments": w.environments(c.Environments)}
	if c.Application != "" {
		w.context["application"] = w.entity("Application", c.Application, nil)
	}
	return w, nil
}

// function is the Function that is called.
func function(name string) types.EntityUID { return types.NewEntityUID("Function", types.String(name)) }

// with is the world of one call, beside others of the same run.
func (w *world) with(name string, seen *arguments, at time.Time) *world {
	one := &world{entities: w.entities, base: w.base, at: at, zones: map[string]cedar.Request{}}
	one.context = make(cedar.RecordMap, len(w.context)+4)
	maps.Copy(one.context, w.context)
	one.context["arguments"], one.context["argument"] = texts(seen.all), cedar.NewRecord(seen.named)
	one.context["omitted"] = texts(seen.omitted)
	one.base.Resource = function(name)
	one.own = types.Entity{UID: one.base.Resource, Attributes: cedar.NewRecord(cedar.RecordMap{"name": types.String(name)})}
	return one
}

// arguments are those of a call as policies see them.
type arguments struct {
	all, omitted []string
	named        cedar.RecordMap
	size         int
}

// argumentsOf reads the arguments of a call. An error is a reason to deny it: what policies cannot see they cannot decide about.
func argumentsOf(encoded json.RawMessage) (*arguments, error) {
	a := &arguments{}
	values, err := decode(encoded)
	if err != nil {
		return nil, err
	}
	return a, a.read(values)
}

// decode reads an object of JSON; none is an empty one.
func decode(encoded json.RawMessage) (map[string]any, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	return values, nil
}

// read takes arguments that have been decoded.
func (a *arguments) read(values map[string]any) error {
	a.named = cedar.RecordMap{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := a.add(name, values[name]); err != nil {
			return err
		}
	}
	return a.name(values)
}

// add adds an argument, or the members of an object or a list.
func (a *arguments) add(name string, value any) error {
	var text string
	switch v := value.(type) {
	case map[string]any:
		for _, member := range slices.Sorted(maps.Keys(v)) {
			if err := a.add(name+"."+member, v[member]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		for _, item := range v {
			if err := a.add(name, item); err != nil {
				return err
			}
		}
		return nil
	case nil:
		return nil
	case string:
		text = v
	case json.Number:
		text = v.String()
	default:
		text = fmt.Sprint(v)
	}
	into := &a.all
	text = name + "=" + text
	if len(text) > maxArgument {
		into, text = &a.omitted, name
	}
	*into = append(*into, text)
	a.size += len(text)
	if len(a.all)+len(a.omitted) > maxArguments || a.size > MaxCall {
		return fmt.Errorf("found more than %d arguments or %d bytes of them; policies decide about at most that", maxArguments, MaxCall)
	}
	return nil
}

// name adds the arguments that the schema names. A name that is longer than policies see is refused.
func (a *arguments) name(values map[string]any) error {
	for _, name := range []string{"namespace", "name", "kind", "path", "url", "method", "repo_url", "branch"} {
		text, is := values[name].(string)
		if !is {
			continue
		}
		if len(text) > maxArgument {
			return fmt.Errorf("found %d bytes of %s; policies decide about at most %d", len(text), name, maxArgument)
		}
		a.named[types.String(name)] = types.String(text)
	}
	for _, name := range []string{"agent_id", "environment_id"} {
		var text string
		switch v := values[name].(type) {
		case json.Number:
			text = v.String()
		case string: // the engine reads a number in quotes, too
			text = v
		default:
			continue
		}
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			a.named[types.String(name)] = types.Long(number)
		}
	}
	return nil
}

// Calls reports whether a policy of the document is about calls.
func (d *Document) Calls() bool { return d.Concerns(FunctionCall) }

func (p *policy) named() []types.EntityUID {
	all, _ := p.actions(false)
	return all
}

// CallSet are the policies about calls that concern one run, ready to decide. It is safe for concurrent use.
type CallSet struct {
	set  Set
	memo *Memo
}

// CombineCalls makes the policies about calls of levels ready. Sets and levels without any are left out, so that a level which has
// policies only about rollouts does not have to permit calls.
func CombineCalls(levels ...Level) (*CallSet, error) {
	set, err := CombineFor(FunctionCall, levels...)
	if err != nil {
		return nil, err
	}
	return &CallSet{set: *set}, nil
}

// Empty reports whether there are no policies at all.
func (s *CallSet) Empty() bool { return s == nil || s.set.Empty() }

// Digest identifies the policies; empty where there are none.
func (s *CallSet) Digest() string { return s.set.digest }

// Decide evaluates all policies that may concern a call. It fails closed: what cannot be evaluated denies.
func (s *CallSet) Decide(c Call) Decision {
	if s.Empty() {
		return Decision{Verdict: Allow}
	}
	seen, err := argumentsOf(c.Arguments)
	if err != nil {
		return s.set.failed(err)
	}
	return s.decide(NewCaller(c), c.Function, seen, c.At, c.Given)
}

// DecideCall is Decide of policies that were combined for calls.
func (s *Set) DecideCall(c Call) Decision { return (&CallSet{set: *s}).Decide(c) }

// removed takes the place of what may be a secret.
const removed = "(removed)"

// secretNames are what the names of arguments end with that may hold a secret. Programs have references to secrets and not their values, so
// this is for those who have written one into their program.
var secretNames = []string{ //nolint:gochecknoglobals // a constant, if a list could be one
	"authorization", "password", "passwd", "secret", "token", "api_key", "apikey", "private_key", "cookie",
}

// WithoutSecrets are arguments without what may be a secret by its name, at any depth.
func WithoutSecrets(encoded json.RawMessage) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil || !conceal(value) {
		return encoded
	}
	clean, err := json.Marshal(value)
	if err != nil {
		return json.RawMessage("{}")
	}
	return clean
}

// conceal replaces what may be a secret, and reports whether there was something.
func conceal(value any) (found bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			lower := strings.ReplaceAll(strings.ToLower(name), "-", "_")
			if slices.ContainsFunc(secretNames, func(suffix string) bool { return strings.HasSuffix(lower, suffix) }) {
				v[name], found = removed, true
				continue
			}
			found = conceal(member) || found
		}
	case []any:
		for _, item := range v {
			found = conceal(item) || found
		}
	}
	return found
}

// maxShown is how many bytes of arguments are kept with a decision, and maxShownText how many of one of them.
const maxShown, maxShownText = 32 << 10, 500

// Shown is the call as it is kept with a decision and shown to people: long arguments are cut.
func (c Call) Shown() Call {
	decoder := json.NewDecoder(bytes.NewReader(c.Arguments))
	decoder.UseNumber()
	var value any
	if len(c.Arguments) == 0 || decoder.Decode(&value) != nil {
		return c
	}
	clean, err := json.Marshal(cut(value))
	if err != nil || len(clean) > maxShown {
		clean = fmt.Appendf(nil, `{"(omitted)": "%d bytes"}`, len(c.Arguments))
	}
	c.Arguments = clean
	return c
}

func cut(value any) any {
	switch v := value.(type) {
	case string:
		if len(v) > maxShownText {
			return strings.ToValidUTF8(v[:maxShownText], "") + fmt.Sprintf("… (%d bytes)", len(v))
		}
	case map[string]any:
		for name, member := range v {
			v[name] = cut(member)
		}
	case []any:
		for i, item := range v {
			v[i] = cut(item)
		}
	}
	return value
}
