package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// checkpoint answers what it is given. It does nothing in the world: its worth is that its answer is recorded before the
// program goes on, so that a program can say where it stands, and computes what is dear once.
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
