// Package expression evaluates the expressions of checks: CEL, with a limit of what one may cost (D37). Their authors are tenants, and they
// are evaluated within our services, so an expression reads nothing but the values that it is given, ends, and makes values of a bounded
// size.
package expression

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// The bounds.
const (
	// MaxText is the length of one expression in bytes.
	MaxText = 16 << 10
	// MaxCost is what one evaluation may cost, in units of CEL: about one for each step, and for each ten characters that are read.
	MaxCost = 100_000
	// MaxValue is the size of a value that an expression makes, about as JSON.
	MaxValue = 256 << 10
	// interrupts is how many rounds of a loop pass between two looks at the context.
	interrupts = 100
	kept       = 2000
	maxDepth   = 64
)

// Error says what is wrong with an expression, and where.
type Error struct {
	// Line and Column are counted from 1, the column in characters; both are 0 where it was evaluated and no place is known.
	Line, Column int
	// Problem is what is wrong.
	Problem string
	// Evaluated is set for an expression that is well-formed, and could not be evaluated with the values that it was given.
	Evaluated bool
}

// Error is the problem with its place.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Problem
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// Program is an expression that has been checked. It is safe for concurrent use.
type Program struct {
	program cel.Program
	// output is the type that the expression has by its form; dynamic for most.
	output *cel.Type
}

// Compile checks an expression that refers to these names. The error is an *Error.
func Compile(text string, names ...string) (*Program, error) {
	if len(text) > MaxText {
		return nil, &Error{Line: 1, Column: 1, Problem: fmt.Sprintf("found %d bytes, expected at most %d", len(text), MaxText)}
	}
	if strings.TrimSpace(text) == "" {
		return nil, &Error{Line: 1, Column: 1, Problem: "found nothing, expected an expression"}
	}
	if !utf8.ValidString(text) {
		return nil, &Error{Line: 1, Column: 1, Problem: "found bytes that are no text, expected UTF-8"}
	}
	sorted := slices.Sorted(slices.Values(names))
	key := strings.Join(sorted, ",") + "\n" + text
	if known := programs.get(key); known != nil {
		return known, nil
	}
	env, err := environment(sorted)
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		return nil, found(issues)
	}
	program, err := env.Program(ast, cel.CostLimit(MaxCost), cel.InterruptCheckFrequency(interrupts), cel.CostTracking(costs{}),
		cel.CustomDecoratorV2(bounded))
	if err != nil {
		return nil, &Error{Line: 1, Column: 1, Problem: oneLine(err.Error())}
	}
	p := &Program{program: program, output: ast.OutputType()}
	programs.put(key, p)
	return p, nil
}

// Kind is what an expression makes.
type Kind string

// The kinds.
const (
	Any  Kind = "any"
	Bool Kind = "bool"
	Map  Kind = "map"
)

// Expect refuses a program that cannot make a value of a kind, whatever its values are. The error is an *Error.
func (p *Program) Expect(kind Kind) error {
	is := p.output
	if is == nil || is.Kind() == types.DynKind || kind == Any || kind == "" {
		return nil
	}
	if kind == Bool && is.Kind() == types.BoolKind || kind == Map && is.Kind() == types.MapKind {
		return nil
	}
	return &Error{Line: 1, Column: 1, Problem: fmt.Sprintf("found an expression that makes a %s, expected a %s", is, kind)}
}

// Evaluate evaluates the expression with values as encoding/json decodes them, where whole numbers may be int64. What it makes is of the
// same form. The error is an *Error, or that of ctx.
func (p *Program) Evaluate(ctx context.Context, values map[string]any) (any, error) {
	out, _, err := p.program.ContextEval(ctx, values)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("evaluate an expression: %w", ctx.Err())
	}
	if err != nil {
		return nil, failed(err)
	}
	left := MaxValue
	v, err := plain(out, &left, 0)
	if err != nil {
		return nil, &Error{Problem: err.Error(), Evaluated: true}
	}
	return v, nil
}

// Fits reports whether a value is of a kind.
func (k Kind) Fits(v any) bool {
	switch k {
	case Bool:
		_, is := v.(bool)
		return is
	case Map:
		_, is := v.(map[string]any)
		return is
	case Any:
	}
	return true
}

// environment declares names of any type, and the functions that depend on nothing but their arguments. There is no clock among them.
func environment(names []string) (*cel.Env, error) {
	base, err := standard()
	if err != nil {
		return nil, fmt.Errorf("make the environment of expressions: %w", err)
	}
	declared := make([]cel.EnvOption, len(names))
	for i, name := range names {
		declared[i] = cel.Variable(name, cel.DynType)
	}
	env, err := base.Extend(declared...)
	if err != nil {
		return nil, fmt.Errorf("declare the names of an expression: %w", err)
	}
	return env, nil
}

// standard is made once.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var standard = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append(texts(), cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true), ext.Math(),
		ext.Encoders(), ext.Bindings(), ext.TwoVarComprehensions())...)
})

// found is the first of the problems of a text.
func found(issues *cel.Issues) error {
	first := issues.Errors()[0]
	for _, e := range issues.Errors() {
		if e.Location.Line() > 0 && (e.Location.Line() < first.Location.Line() ||
			e.Location.Line() == first.Location.Line() && e.Location.Column() < first.Location.Column()) {
			first = e
		}
	}
	problem := oneLine(strings.ReplaceAll(first.Message, " (in container '')", ""))
	return &Error{Line: max(1, first.Location.Line()), Column: max(1, first.Location.Column()+1), Problem: problem}
}

// failed is why an evaluation has ended.
func failed(err error) error {
	problem := oneLine(err.Error())
	switch {
	case strings.Contains(problem, "cost limit exceeded"):
		problem = fmt.Sprintf("it costs more than %d units, expected smaller loops and texts", MaxCost)
	case errors.Is(err, context.DeadlineExceeded):
		problem = "it took too long"
	}
	return &Error{Problem: problem, Evaluated: true}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

var errLarge = fmt.Errorf("it makes a value of more than %d bytes, expected a smaller one", MaxValue)

// plain is a value as encoding/json has it. left is what it may still take.
func plain(v ref.Val, left *int, depth int) (any, error) {
	if *left--; *left < 0 {
		return nil, errLarge
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("it makes a value that is nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case *types.Optional:
		if !v.HasValue() {
			return nil, nil //nolint:nilnil // the value null
		}
		return plain(v.GetValue(), left, depth)
	case types.Null:
		return nil, nil //nolint:nilnil // the value null
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		return int64(v), nil
	case types.Double:
		return float64(v), nil
	case types.String:
		return text(string(v), left)
	case types.Bytes:
		return text(base64.StdEncoding.EncodeToString(v), left)
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.String(), nil
	case traits.Mapper:
		return object(v, left, depth)
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			each, err := plain(it.Next(), left, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, each)
		}
		return list, nil
	default:
		return nil, fmt.Errorf("it makes a %s, expected a value that JSON has", v.Type().TypeName())
	}
}

func text(s string, left *int) (any, error) {
	if *left -= len(s); *left < 0 {
		return nil, errLarge
	}
	return s, nil
}

func object(m traits.Mapper, left *int, depth int) (any, error) {
	all := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, is := key.(types.String)
		if !is {
			return nil, fmt.Errorf("it makes a map with a key of type %s, expected texts", key.Type().TypeName())
		}
		if *left -= len(name); *left < 0 {
			return nil, errLarge
		}
		each, err := plain(m.Get(key), left, depth+1)
		if err != nil {
			return nil, err
		}
		all[string(name)] = each
	}
	return all, nil
}

// cache keeps programs: a check evaluates the same expressions again and again.
type cache struct {
	mu  sync.Mutex
	all map[string]*Program
}

//nolint:gochecknoglobals // programs are the same for everybody
var programs = &cache{all: map[string]*Program{}}

func (c *cache) get(key string) *Program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[key]
}

func (c *cache) put(key string, p *Program) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= kept { // a tenth of them gives way, whichever
		n := 0
		for key := range maps.Keys(c.all) {
			if n++; n > kept/10 {
				break
			}
			delete(c.all, key)
		}
	}
	c.all[key] = p
}
