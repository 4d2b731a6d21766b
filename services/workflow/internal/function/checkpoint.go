package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

// checkpoint answers what it is given. It does nothing in the world: its worth is that its answer is recorded before the
// program goes on, so that a program can say where it stands, and computes what is dear once.
func checkpoint() *Function {
	return &Function{
		spec: Spec{
			Name: "checkpoint", Location: core.InProcess, Retry: RetryNever, Idempotent: true, Pure: true,
			Arguments: []Field{{Name: "state", Type: Free, Required: true}},
		},
		do: func(_ context.Context, call core.Call) (any, error) { return call.Args["state"], nil },
	}
}
