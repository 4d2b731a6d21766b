package script

import (
	"errors"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// An object and a dict of equal content are equal, wherever in a value they are. The interpreter lets values of two types never be equal,
// so where a program compares what may hold either, its file is changed before it is compiled: x == y becomes ==(x, y) == 1, and
// x in y becomes in(x, y) == 1, with builtins whose names no program can write.

// The names of these builtins.
const (
	equalName    = "=="
	containsName = "in"
	searchedName = "index"
)

// comparisons are the builtins that stand for operators.
func comparisons() map[string]builtin {
	return map[string]builtin{
		equalName:    compared(func(x, y starlark.Value) (bool, error) { return equal(x, y, starlark.CompareLimit) }),
		containsName: compared(contains),
		// The interpreter's own index and remove of lists compare as it does.
		"." + searchedName: func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
			if list, ok := args[0].(*starlark.List); ok {
				return searched{list}, nil
			}
			return args[0], nil
		},
	}
}

// compared is a builtin of two arguments that answers 1 or 0.
func compared(holds func(x, y starlark.Value) (bool, error)) builtin {
	return func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		yes, err := holds(args[0], args[1])
		if err != nil || !yes {
			return starlark.MakeInt(0), err
		}
		return starlark.MakeInt(1), nil
	}
}

// compareContent has a file compare by content. Most comparisons are with something written out that is neither, and stay as they are.
func compareContent(file *syntax.File) {
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.BinaryExpr:
			compareExpr(n)
		case *syntax.DotExpr:
			if n.Name.Name == searchedName || n.Name.Name == "remove" {
				n.X = callOf("."+searchedName, n.Dot, n.X)
			}
		}
		return true
	})
}

func compareExpr(n *syntax.BinaryExpr) {
	name, op, answer := equalName, syntax.EQL, int64(1)
	switch n.Op {
	case syntax.EQL:
	case syntax.NEQ:
		answer = 0
	case syntax.IN:
		name = containsName
	case syntax.NOT_IN:
		name, answer = containsName, 0
	default:
		return
	}
	// A scalar equals neither an object nor a dict, and a list contains it only as a scalar: the expression stays as it is. To the right
	// of in, a scalar is text.
	if isScalar(n.X) || isScalar(n.Y) {
		return
	}
	n.X, n.Op = callOf(name, n.OpPos, n.X, n.Y), op
	n.Y = &syntax.Literal{Token: syntax.INT, TokenPos: n.OpPos, Raw: "1", Value: answer}
}

// callOf is a call of a builtin at a place in the file.
func callOf(name string, at syntax.Position, args ...syntax.Expr) *syntax.CallExpr {
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: at, Name: name}, Lparen: at, Args: args, Rparen: at}
}

// isScalar reports whether an expression is a number or a text, written out. None, True and False are names, which a program may change.
func isScalar(expr syntax.Expr) bool {
	for {
		paren, ok := expr.(*syntax.ParenExpr)
		if !ok {
			break
		}
		expr = paren.X
	}
	_, ok := expr.(*syntax.Literal)
	return ok
}

// equal is the interpreter's, but for objects and dicts. Its bound of depth is the interpreter's, too: values may hold themselves.
func equal(x, y starlark.Value, depth int) (bool, error) {
	if depth < 1 {
		return false, errors.New("comparison exceeded maximum recursion depth")
	}
	if a, b := dictOf(x), dictOf(y); a != nil && b != nil {
		return equalDicts(a, b, depth)
	}
	switch x := x.(type) {
	case *starlark.List:
		if y, ok := y.(*starlark.List); ok {
			return equalItems(x, y, depth)
		}
	case starlark.Tuple:
		if y, ok := y.(starlark.Tuple); ok {
			return equalItems(x, y, depth)
		}
	case *starlarkstruct.Struct:
		if y, ok := y.(*starlarkstruct.Struct); ok {
			return equalStructs(x, y, depth)
		}
	}
	return starlark.EqualDepth(x, y, depth)
}

// dictOf are the members of a dict or an object; nil for anything else.
func dictOf(v starlark.Value) *starlark.Dict {
	switch v := v.(type) {
	case *Object:
		return v.members()
	case *starlark.Dict:
		return v
	default:
		return nil
	}
}

func equalDicts(x, y *starlark.Dict, depth int) (bool, error) {
	if x.Len() != y.Len() {
		return false, nil
	}
	for _, item := range x.Items() {
		other, found, err := y.Get(item[0])
		if err != nil || !found {
			return false, err
		}
		if same, err := equal(item[1], other, depth-1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func equalItems(x, y starlark.Indexable, depth int) (bool, error) {
	if x.Len() != y.Len() {
		return false, nil
	}
	for i := range x.Len() {
		if same, err := equal(x.Index(i), y.Index(i), depth-1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func equalStructs(x, y *starlarkstruct.Struct, depth int) (bool, error) {
	names := x.AttrNames()
	if !slices.Equal(names, y.AttrNames()) {
		return false, nil
	}
	if same, err := equal(x.Constructor(), y.Constructor(), depth-1); err != nil || !same {
		return false, err
	}
	for _, name := range names {
		a, err := x.Attr(name)
		if err != nil {
			return false, err
		}
		b, err := y.Attr(name)
		if err != nil {
			return false, err
		}
		if same, err := equal(a, b, depth-1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// contains is x in y.
func contains(x, y starlark.Value) (bool, error) {
	var items starlark.Indexable
	switch y := y.(type) {
	case *starlark.List:
		items = y
	case starlark.Tuple:
		items = y
	default:
		found, err := starlark.Binary(syntax.IN, x, y)
		if err != nil {
			return false, err
		}
		return bool(found.Truth()), nil
	}
	at, err := indexOf(items, x, 0, items.Len())
	return at >= 0, err
}

// indexOf is where the first equal item is, or -1.
func indexOf(items starlark.Indexable, v starlark.Value, from, to int) (int, error) {
	for i := from; i < to; i++ {
		if same, err := equal(items.Index(i), v, starlark.CompareLimit); err != nil || same {
			return i, err
		}
	}
	return -1, nil
}

// searched is a list whose index and remove find by content.
type searched struct {
	*starlark.List
}

// Attr is the list's.
func (s searched) Attr(name string) (starlark.Value, error) {
	method, err := s.List.Attr(name)
	own, ok := method.(*starlark.Builtin)
	if err != nil || !ok {
		return method, err
	}
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple,
		kwargs []starlark.Tuple,
	) (starlark.Value, error) {
		if len(args) == 0 || len(kwargs) > 0 {
			return own.CallInternal(thread, args, kwargs)
		}
		from, to := 0, s.Len()
		if name == searchedName {
			from, to = bounds(args[1:], s.Len())
		}
		at, err := indexOf(s.List, args[0], from, to)
		if err == nil && at >= 0 {
			// By its own item the interpreter finds the same place: what equals that equals this.
			args = append(starlark.Tuple{s.Index(at)}, args[1:]...)
		}
		return own.CallInternal(thread, args, kwargs)
	}).BindReceiver(s.List), nil
}

// bounds are the part of a list that index searches. What is no number is for the interpreter to refuse.
func bounds(args starlark.Tuple, n int) (from, to int) {
	places := [2]int{0, n}
	for i, arg := range args[:min(len(args), len(places))] {
		place, err := starlark.AsInt32(arg)
		if err != nil {
			continue
		}
		if place < 0 {
			place += n
		}
		places[i] = min(max(place, 0), n)
	}
	return places[0], places[1]
}
