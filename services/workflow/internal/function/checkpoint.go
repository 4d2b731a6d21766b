package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// checkpoint returns its arguments. It has no effect in the world: its value is recorded before the program continues, so that a program
// can report how far it is, and computes what is expensive once.
func checkpoint() *Function {
	return &Function{
		spec: Spec{
			Name: "checkpoint", Location: activity.InProcess, Retry: RetryNever, Idempotent: true, Pure: true, Effect: activity.Reads,
			Doc: "Records the state and answers it. What a program computes and records this way is computed once: after a restart the\n" +
				"recorded answer is used.",
			Arguments: []Field{{Name: "state", Doc: "What to record.", Type: Free, Required: true}},
		},
		do: func(_ context.Context, call activity.Call) (any, error) { return call.Args["state"], nil },
	}
}
