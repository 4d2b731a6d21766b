package program

// Scripts runs programs. The one implementation speaks Starlark.
type Scripts interface {
	// Check parses and resolves a program and everything it loads, against the inputs it will be started with. The error
	// is fault.Invalid and carries the position.
	Check(p Program, inputs []byte) error
	// Inspect says what a program uses and which events start it, without running any of it. What is wrong with the
	// program is the error, as in Check; inputs need not be known.
	Inspect(p Program) (Outline, error)
	// Open prepares a run. Nothing of the program is executed yet.
	Open(p Program, inputs []byte, env Environment) (Machine, error)
}

// Near is Scripts that can say whether a program runs in this process, so that nothing can hold it up but itself.
type Near interface {
	Near(p Program) bool
}

// Shared is Scripts that organizations share, and that keeps them apart.
type Shared interface {
	// For is the same for the programs of one organization, also before they are run.
	For(organization int64) Scripts
}

// ScriptsFor is what checks the programs of an organization.
func ScriptsFor(s Scripts, organization int64) Scripts {
	if shared, is := s.(Shared); is {
		return shared.For(organization)
	}
	return s
}
