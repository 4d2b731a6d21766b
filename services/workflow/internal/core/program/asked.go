package program

import "github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"

// The bounds of what is passed to Environment.Asked, in bytes.
const (
	// MaxInput is where the arguments of one operation are cut.
	MaxInput = 16 << 10
	// MaxInputs bounds the arguments that are passed during one replay; further ones are left out.
	MaxInputs = 8 << 20
)

// Asked is an operation that a program has reached.
type Asked struct {
	Op history.OpRef
	// Input is what was fingerprinted of the operation: the arguments of a Function as JSON, for other kinds what each makes of its own. Cut
	// says that it is not all of it.
	Input string `json:",omitempty"`
	Cut   bool   `json:",omitempty"`
	// Position is where in the program: file:line:column.
	Position string
	// After is how many entries of its generation the program had been handed before.
	After int
	// Parent is the branch that has spawned the operation's; -1 for the first one, which nothing has.
	Parent int
}
