package workflow

import (
	"github.com/lockstep-cd/lockstep/services/workflow/internal/api"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function"
)

// EmitFunction is the name of the Function that the engine itself executes: it emits an event.
const EmitFunction = activity.EmitFunction

// Functions are the declarations of everything that programs may run, beside EmitFunction, for the reference.
func Functions() []function.Spec {
	var all []function.Spec
	for _, f := range append(function.All(nil, nil, nil), function.Watching(function.WatchDeps{})...) {
		if declared, ok := f.(*function.Function); ok {
			all = append(all, declared.Spec())
		}
	}
	return all
}

// builtins are the Functions that all organizations have, as ListFunctions answers them.
func builtins() []api.Builtin {
	all := []api.Builtin{{
		Name: EmitFunction, Doc: "Emits an event of the organization: a type that programs may emit, with its data.", Effect: activity.Reads,
	}}
	for _, s := range Functions() {
		all = append(all, api.Builtin{Name: s.Name, Doc: s.Doc, Effect: s.Effect})
	}
	return all
}

// FunctionCodes are the error codes that programs may compare with, for the reference.
func FunctionCodes() []function.Code { return function.Codes() }
