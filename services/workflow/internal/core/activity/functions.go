package activity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Functions are all Functions that programs may run, by name.
type Functions struct {
	byName map[string]Function
	more   Registered
}

// Registered are the Functions of organizations: those that their workers have registered.
type Registered interface {
	// Registered returns the Function of that name, if the organization has one. The error means that this is not known now.
	Registered(ctx context.Context, organization int64, name string) (f Function, found bool, err error)
}

// Add adds the Functions of organizations. It is called before the Functions are used.
func (r *Functions) Add(more Registered) { r.more = more }

// Of finds a Function that the runs of an organization may call. The error means that this is not known now.
func (r *Functions) Of(ctx context.Context, organization int64, name string) (Function, bool, error) {
	if f, found := r.byName[name]; found || r.more == nil || organization == 0 || name == EmitFunction {
		return f, found, nil
	}
	return r.more.Registered(ctx, organization, name)
}

// NewFunctions registers Functions. Two of the same name are an error. "emit" is taken: run("emit") goes to the
// engine and would never reach a Function of that name.
func NewFunctions(functions ...Function) (*Functions, error) {
	r := &Functions{byName: make(map[string]Function, len(functions))}
	for _, f := range functions {
		if _, taken := r.byName[f.Name()]; taken || f.Name() == "" || f.Name() == EmitFunction {
			return nil, fmt.Errorf("register function %q: the name is taken or empty", f.Name())
		}
		if f.Effect() < Reads || f.Effect() > Publishes {
			return nil, fmt.Errorf("register function %q: found effect %d, expected reads, changes, takes back, proposes or publishes", f.Name(), f.Effect())
		}
		if _, states := f.(Toucher); f.Effect().Mutates() && !states {
			return nil, fmt.Errorf("register function %q: it %s something, and does not state what (Toucher)", f.Name(), f.Effect())
		}
		r.byName[f.Name()] = f
	}
	return r, nil
}

// Lookup finds a Function that all organizations have.
func (r *Functions) Lookup(name string) (Function, bool) {
	f, ok := r.byName[name]
	return f, ok
}

// Names are the names of all Functions, sorted.
func (r *Functions) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// Unknown is the error of a program that runs a Function which does not exist.
func (r *Functions) Unknown(name string) *history.FunctionError {
	if name == EmitFunction {
		return &history.FunctionError{Code: history.CodeUnknownFunction, Message: "emit sends an event, and is no function to poll"}
	}
	known := strings.Join(append([]string{EmitFunction}, r.Names()...), ", ")
	return &history.FunctionError{
		Code:    history.CodeUnknownFunction,
		Message: fmt.Sprintf("there is no function %q, expected one of %s", name, known),
	}
}

// EmitFunction is the name under which programs reach the engine's own emit: run("emit", {"type": …, "data": …}).
const EmitFunction = "emit"

// OnCluster declares a Function that relays carry out, and that changes nothing.
func OnCluster(name string) Function { return onCluster(name) }

type onCluster string

// Name is what programs call it.
func (f onCluster) Name() string { return string(f) }

// Location is Cluster, which is all that the engine needs to send it to a relay.
func (onCluster) Location() Location { return Cluster }

// Effect is Reads.
func (onCluster) Effect() Effect { return Reads }

// Call refuses: to get here, the engine has mistaken it for one of its own.
func (f onCluster) Call(context.Context, Call) (any, error) {
	return nil, &history.FunctionError{Code: history.CodeInternal, Message: string(f) + " is carried out by a relay, not here"}
}
