package expression

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// CEL's own costs are those of types that are known beforehand. The values here are of any type, so a call costs what its arguments and its
// result are long, whatever they turn out to be. A cost is known only after the call, so no single call may take long: a list or map that
// an expression builds has a bounded number of parts, those of its parts included, and the functions on texts bound what they make.
const (
	// maxParts is how many parts a list or map may have that an expression writes down.
	maxParts = 10_000
	// maxMade is the length of a text that one call makes.
	maxMade = 256 << 10
	// perUnit is how many characters or parts cost one unit.
	perUnit = 10
)

// costs charges calls.
type costs struct{}

// CallCost is what a call has cost.
func (costs) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	length := 0
	if sum, is := result.(traits.Lister); is && function == "_+_" {
		if _, grows := result.(traits.MutableLister); grows { // a loop that builds a list takes no copy of it
			length = parts(args[len(args)-1], MaxCost*perUnit)
		} else if n, is := sum.Size().(types.Int); is { // reading a sum takes longer the more lists it is made of
			length = int(n) * perUnit
		}
	} else {
		if function != "_[_]" && function != "_[?_]" {
			for _, arg := range args {
				length += parts(arg, MaxCost*perUnit)
			}
		}
		if result != nil {
			length += parts(result, MaxCost*perUnit)
		}
	}
	cost := uint64(1 + length/perUnit)
	return &cost
}

// parts is how many characters and values a value has, at most most.
func parts(v ref.Val, most int) int {
	switch v := v.(type) {
	case types.String:
		return min(1+len(v), most)
	case types.Bytes:
		return min(1+len(v), most)
	case *types.Optional:
		if v.HasValue() {
			return parts(v.GetValue(), most)
		}
	case traits.Mapper:
		n := 1
		for it := v.Iterator(); n < most && it.HasNext() == types.True; {
			key := it.Next()
			n += parts(key, most-n)
			if value, is := v.Find(key); is {
				n += parts(value, most-n)
			}
		}
		return n
	case traits.Lister:
		n := 1
		for it := v.Iterator(); n < most && it.HasNext() == types.True; {
			n += parts(it.Next(), most-n)
		}
		return n
	}
	return 1
}

// bounded refuses lists and maps of too many values.
func bounded(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, is := node.(interpreter.InterpretableConstructor); is {
		return &constructor{c}, nil
	}
	return node, nil
}

type constructor struct {
	interpreter.InterpretableConstructor
}

// Eval makes the list or map.
func (c *constructor) Eval(a interpreter.Activation) ref.Val {
	return c.check(c.InterpretableConstructor.Eval(a))
}

// Exec makes the list or map.
func (c *constructor) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	return c.check(c.InterpretableConstructor.Exec(frame))
}

func (*constructor) check(v ref.Val) ref.Val {
	if values(v, maxParts) >= maxParts {
		return types.NewErr("it builds a list or map of more than %d values, those within its values included", maxParts)
	}
	return v
}

// values is how many values there are in a value, at most most.
func values(v ref.Val, most int) int {
	n := 1
	switch v := v.(type) {
	case traits.Mapper:
		for it := v.Iterator(); n < most && it.HasNext() == types.True; {
			if value, is := v.Find(it.Next()); is {
				n += values(value, most-n)
			}
		}
	case traits.Lister:
		for it := v.Iterator(); n < most && it.HasNext() == types.True; {
			n += values(it.Next(), most-n)
		}
	}
	return n
}

// texts are the functions on texts. Those of the library would make texts of any length in one call.
func texts() []cel.EnvOption {
	one := func(name string, f func(string) string) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("text_"+name, []*cel.Type{cel.StringType}, cel.StringType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.String(f(string(v.(types.String)))) }))) //nolint:forcetypeassert // of this type
	}
	several := func(name string, result *cel.Type, f functions.FunctionOp, more ...*cel.Type) cel.EnvOption {
		takes := append([]*cel.Type{cel.StringType}, more...)
		return cel.Function(name, cel.MemberOverload(fmt.Sprintf("text_%s_%d", name, len(more)), takes, result, cel.FunctionBinding(f)))
	}
	s, n := cel.StringType, cel.IntType
	return []cel.EnvOption{
		one("lowerAscii", strings.ToLower), one("upperAscii", strings.ToUpper), one("trim", strings.TrimSpace),
		several("indexOf", n, func(args ...ref.Val) ref.Val { return types.Int(strings.Index(of(args, 0), of(args, 1))) }, s),
		several("replace", s, replace, s, s), several("split", cel.ListType(s), split, s),
		several("substring", s, substring, n), several("substring", s, substring, n, n),
		cel.Function("join", cel.MemberOverload("texts_join", []*cel.Type{cel.ListType(s), s}, s, cel.BinaryBinding(join))),
	}
}

func of(args []ref.Val, i int) string {
	s, _ := args[i].(types.String)
	return string(s)
}

func replace(args ...ref.Val) ref.Val {
	text, old, with := of(args, 0), of(args, 1), of(args, 2)
	if n := strings.Count(text, old); n > 0 && len(text)+n*(len(with)-len(old)) > maxMade {
		return types.NewErr("replace makes a text of more than %d bytes", maxMade)
	}
	return types.String(strings.ReplaceAll(text, old, with))
}

func split(args ...ref.Val) ref.Val {
	if strings.Count(of(args, 0), of(args, 1)) > maxParts {
		return types.NewErr("split makes more than %d parts", maxParts)
	}
	return types.NewStringList(types.DefaultTypeAdapter, strings.Split(of(args, 0), of(args, 1)))
}

func join(list, separator ref.Val) ref.Val {
	var b strings.Builder
	between, _ := separator.(types.String)
	l, _ := list.(traits.Lister)
	for it, first := l.Iterator(), true; it.HasNext() == types.True; first = false {
		each, is := it.Next().(types.String)
		if !is {
			return types.NewErr("join: found a value that is no text")
		}
		if !first {
			b.WriteString(string(between))
		}
		if b.WriteString(string(each)); b.Len() > maxMade {
			return types.NewErr("join makes a text of more than %d bytes", maxMade)
		}
	}
	return types.String(b.String())
}

// substring is the characters of a text from one position to before another.
func substring(args ...ref.Val) ref.Val {
	runes := []rune(of(args, 0))
	from, _ := args[1].(types.Int)
	to := types.Int(len(runes))
	if len(args) > 2 {
		to, _ = args[2].(types.Int)
	}
	if from < 0 || to > types.Int(len(runes)) || from > to {
		return types.NewErr("substring: found the positions %d to %d, expected some within %d characters", from, to, len(runes))
	}
	return types.String(runes[from:to])
}
