package function

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// maxSecretName bounds the names of credentials and secrets, in bytes.
const maxSecretName = 255

// ofWorker is a Function that workers have registered.
type ofWorker struct {
	worker.Declaration

	arguments, result *schema.Schema // nil for any
}

var (
	_ worker.Function  = (*ofWorker)(nil)
	_ activity.Toucher = (*ofWorker)(nil)
)

// OfWorker makes a Function of a declaration. The error is Invalid and names the schema.
func OfWorker(d worker.Declaration) (worker.Function, error) {
	f := &ofWorker{Declaration: d}
	for name, each := range map[string]struct {
		text json.RawMessage
		to   **schema.Schema
	}{"arguments": {d.Arguments, &f.arguments}, "result": {d.Result, &f.result}} {
		if len(each.text) == 0 {
			continue
		}
		compiled, err := schema.Compile(each.text)
		if err != nil {
			return nil, fault.Because(err, fault.Invalid, "the schema of the %s: %s", name, fault.Public(err))
		}
		*each.to = compiled
	}
	return f, nil
}

// Name is what programs call it.
func (f *ofWorker) Name() string { return f.Declaration.Name }

// Location is Worker.
func (*ofWorker) Location() activity.Location { return activity.Worker }

// Effect is what the declaration states.
func (f *ofWorker) Effect() activity.Effect { return f.EffectOf() }

// Retries reports whether failures that the worker calls retryable are tried again.
func (f *ofWorker) Retries() bool { return f.Retry }

// Call refuses: to get here, the engine has mistaken it for one of its own.
func (f *ofWorker) Call(context.Context, activity.Call) (any, error) {
	return nil, &history.FunctionError{Code: history.CodeInternal, Message: f.Name() + " is executed by a worker, not here"}
}

// Check compares arguments with the schema. Those that are secrets are names.
func (f *ofWorker) Check(args map[string]any) error {
	for _, name := range f.Secrets {
		if given, is := args[name]; is && given != nil {
			if text, is := given.(string); !is || text == "" || len(text) > maxSecretName {
				return &history.FunctionError{
					Code: history.CodeInvalid, Message: fmt.Sprintf("%s: %s: expected the name of a credential, or of a secret of the run", f.Name(), name),
				}
			}
		}
	}
	if f.arguments == nil {
		return nil
	}
	text, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", f.Name(), err)
	}
	if err := f.arguments.Validate(text); err != nil {
		return &history.FunctionError{Code: history.CodeInvalid, Message: f.Name() + ": " + fault.Public(err)}
	}
	return nil
}

// CheckResult compares an answer with the schema.
func (f *ofWorker) CheckResult(value json.RawMessage) error {
	if f.result == nil {
		return nil
	}
	return f.result.Validate(value)
}
