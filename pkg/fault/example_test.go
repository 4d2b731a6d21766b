package fault_test

import (
	"errors"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// A class is given once, where a caller can act on it. Wrapping keeps it, and adds to what callers read, so what wraps it is written for
// them, too. The cause is for the log alone.
func Example() {
	cause := errors.New(`ERROR: duplicate key value violates unique constraint "cd_environments_name_is_unique"`)
	var err error = fault.Because(cause, fault.Conflict, "an environment named %q exists", "staging")
	err = fmt.Errorf("create environment: %w", err)

	row := fault.Describe(fault.ClassOf(err))
	fmt.Println("gRPC code:", row.GRPC)
	fmt.Println("GraphQL code:", row.GraphQL)
	fmt.Println("a caller sees:", fault.Public(err))
	fmt.Println("the log has the cause:", errors.Is(err, cause))

	// An error without a class is Internal: its text never leaves the process.
	fmt.Println("of any other error:", fault.Public(cause))
	// Output:
	// gRPC code: 6
	// GraphQL code: CONFLICT
	// a caller sees: create environment: an environment named "staging" exists
	// the log has the cause: true
	// of any other error: internal error
}
