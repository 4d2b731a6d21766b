package script

import (
	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

// aliases are the names of a file that stand for a builtin: bound once, to it, as in f = run. A name is known by where it is bound,
// which is the same identifier for every use of it.
type aliases struct {
	builtins map[*syntax.Ident]string
	// exported are those at the top level, for files that load this one.
	exported map[string]string
	// explained are the places where a builtin is named and it is known what happens to it.
	explained map[*syntax.Ident]bool
}

// aliasesOf reads what a file binds once and for all. loaded answers what another one exports.
func aliasesOf(file *syntax.File, loaded func(module string) map[string]string) aliases {
	a := aliases{builtins: map[*syntax.Ident]string{}, exported: map[string]string{}, explained: map[*syntax.Ident]bool{}}
	bound := bindings(file)
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.AssignStmt:
			name := bindingOf(n.LHS)
			builtin := a.builtin(n.RHS)
			if name == nil || n.Op != syntax.EQ || builtin == "" || bound[name.First] != 1 {
				break
			}
			a.builtins[name.First] = builtin
			a.explain(n.LHS, n.RHS)
			if name.Scope == resolve.Global {
				a.exported[name.First.Name] = builtin
			}
		case *syntax.LoadStmt:
			for i, from := range n.From {
				name := bindingOf(n.To[i])
				if builtin := loaded(n.ModuleName())[from.Name]; builtin != "" && name != nil && bound[name.First] == 1 {
					a.builtins[name.First] = builtin
					a.explain(n.To[i])
				}
			}
		}
		return true
	})
	return a
}

// builtin is the name of the builtin that an expression stands for, or "". What a program has defined itself under that name is none.
func (a aliases) builtin(expr syntax.Expr) string {
	ident := identOf(expr)
	binding := bindingOf(expr)
	switch {
	case binding == nil:
		return ""
	case binding.Scope == resolve.Predeclared:
		return ident.Name
	default:
		return a.builtins[binding.First]
	}
}

// explain notes that these mentions of builtins need no other look.
func (a aliases) explain(mentions ...syntax.Expr) {
	for _, expr := range mentions {
		if ident := identOf(expr); ident != nil {
			a.explained[ident] = true
		}
	}
}

// identOf is the name that an expression consists of; nil for any other.
func identOf(expr syntax.Expr) *syntax.Ident {
	for {
		paren, ok := expr.(*syntax.ParenExpr)
		if !ok {
			break
		}
		expr = paren.X
	}
	ident, _ := expr.(*syntax.Ident)
	return ident
}

// bindingOf is what a resolved name is bound to; nil for any other expression.
func bindingOf(expr syntax.Expr) *resolve.Binding {
	ident := identOf(expr)
	if ident == nil {
		return nil
	}
	binding, _ := ident.Binding.(*resolve.Binding)
	return binding
}

// bindings counts how often each name of a file is given a value. A name within what is assigned to, as in a[i] = 1, counts as well:
// that is too often, and never too seldom.
func bindings(file *syntax.File) map[*syntax.Ident]int {
	bound := map[*syntax.Ident]int{}
	bind := func(target syntax.Node) {
		syntax.Walk(target, func(n syntax.Node) bool {
			if ident, ok := n.(*syntax.Ident); ok {
				if binding := bindingOf(ident); binding != nil {
					bound[binding.First]++
				}
			}
			return true
		})
	}
	parameters := func(params []syntax.Expr) {
		for _, param := range params {
			if optional, ok := param.(*syntax.BinaryExpr); ok {
				param = optional.X
			}
			bind(param)
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.AssignStmt:
			bind(n.LHS)
		case *syntax.ForStmt:
			bind(n.Vars)
		case *syntax.ForClause:
			bind(n.Vars)
		case *syntax.DefStmt:
			bind(n.Name)
			parameters(n.Params)
		case *syntax.LambdaExpr:
			parameters(n.Params)
		case *syntax.LoadStmt:
			for _, to := range n.To {
				bind(to)
			}
		}
		return true
	})
	return bound
}
