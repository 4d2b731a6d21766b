package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Location says where a Function is carried out. The program that runs it cannot tell. The numbers are stored with
// open calls (call.location).
type Location int

const (
	// InProcess Functions are called inside this service (git.commit, manifest.pin).
	InProcess Location = iota
	// Cluster Functions are carried out by the relay of the agent named by the argument agent_id (k8s.get, argo.sync).
	Cluster
)

// Function is one thing that a program can have done in the world with run(name, args). "emit" is not one of them: the
// engine does it itself, inside the transaction that records it.
//
// Implementations are safe for concurrent use.
type Function interface {
	// Name is what programs call it: "git.commit".
	Name() string
	// Location is where it is carried out. It is the same for the life of the process.
	Location() Location
	// Call carries it out. It may be called more than once with the same Call.ID, because a process can die between the
	// effect and its record: the effect must then happen once, and the same value come back.
	//
	// The value is what encoding/json can encode; it becomes part of the history, so it carries no secret, address,
	// time stamp of its own or stack trace. A *FunctionError tells the program what went wrong; any other error is a
	// *FunctionError with code "internal" to the program. Call is never used for a Cluster Function.
	Call(ctx context.Context, call Call) (any, error)
}

// Checker is a Function that can say whether arguments fit it before anything is sent. The error is a *FunctionError that
// names the field.
type Checker interface {
	Check(args map[string]any) error
}

// Pure is a Function of this process that can say of itself that it does nothing in the world and answers at once, from its arguments
// alone: nobody can tell whether and when it was called. One that does not say so is not.
type Pure interface {
	Pure() bool
}

// pure reports whether a Function says that it is.
func pure(f Function) bool {
	p, can := f.(Pure)
	return can && f.Location() == InProcess && p.Pure()
}

// Call is one use of a Function.
type Call struct {
	// ID is "<execution>/<branch>.<op>": the idempotency key, the same for every attempt at the same activity.
	ID string
	// Organization owns the workflow.
	Organization int64
	// Workflow is the workflow id that the caller of StartWorkflow chose.
	Workflow string
	// Function is the name it was called by.
	Function string
	// Args are the arguments as encoding/json decodes them with UseNumber off, but whole numbers are int64.
	Args map[string]any
	// Secrets are the secret *references* of the workflow by name (D27): resolve them here, tell Conceal, and never return or log the value.
	Secrets map[string]string
	// Attempt counts from 1. For an InProcess Function it starts anew after a restart.
	Attempt int
	// Trace is the execution's.
	Trace string
	// Deadline is when the engine stops waiting; ctx ends then as well.
	Deadline time.Time
}

// FunctionError is a Function's refusal or failure, in words that the program and the reader of its history may see.
type FunctionError struct {
	// Code is a stable token: not_found, forbidden, unreachable, conflict, invalid, timeout, internal …
	Code string `json:"code"`
	// Message is one human sentence.
	Message string `json:"message"`
	// Retryable makes the engine call again, with the same Call.ID and a growing interval, until the call's deadline.
	Retryable bool `json:"retryable,omitempty"`
}

// The codes that the engine itself answers with.
const (
	// CodeInternal is an error that a Function did not put into words.
	CodeInternal = "internal"
	// CodeTimeout is a call that was not answered before its deadline (D12).
	CodeTimeout = "timeout"
	// CodeInvalid is a call with arguments that cannot be sent.
	CodeInvalid = "invalid"
	// CodeTooLarge is an answer that is larger than a program can be given.
	CodeTooLarge = "too_large"
	// CodeUnreadable is an answer, an event or a message that no program can read.
	CodeUnreadable = "unreadable"
	// CodeUnknownFunction is a Function that is not registered.
	CodeUnknownFunction = "unknown_function"
)

// Error is "code: message".
func (e *FunctionError) Error() string { return e.Code + ": " + e.Message }

// AsFunctionError finds the *FunctionError in err's chain, or makes an internal one that does not show err's text.
// That text may hold addresses or secrets, and a message becomes part of the history (D27).
func AsFunctionError(err error) *FunctionError {
	if fe, ok := errors.AsType[*FunctionError](err); ok {
		return &FunctionError{Code: cmp.Or(fe.Code, CodeInternal), Message: fe.Message, Retryable: fe.Retryable}
	}
	return &FunctionError{Code: CodeInternal, Message: "the function did not finish; the service's log says why"}
}

// Functions are all Functions that programs may run, by name.
type Functions struct {
	byName map[string]Function
}

// NewFunctions registers Functions. Two of the same name are an error. "emit" is taken: run("emit") goes to the
// engine and would never reach a Function of that name.
func NewFunctions(functions ...Function) (*Functions, error) {
	r := &Functions{byName: make(map[string]Function, len(functions))}
	for _, f := range functions {
		if _, taken := r.byName[f.Name()]; taken || f.Name() == "" || f.Name() == EmitFunction {
			return nil, fmt.Errorf("register function %q: the name is taken or empty", f.Name())
		}
		r.byName[f.Name()] = f
	}
	return r, nil
}

// Lookup finds a Function.
func (r *Functions) Lookup(name string) (Function, bool) {
	f, ok := r.byName[name]
	return f, ok
}

// Names are the names of all Functions, sorted.
func (r *Functions) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// unknown is what a program is told that runs a Function which there is not.
func (r *Functions) unknown(name string) *FunctionError {
	if name == EmitFunction {
		return &FunctionError{Code: CodeUnknownFunction, Message: "emit sends an event, and is no function to poll"}
	}
	known := strings.Join(append([]string{EmitFunction}, r.Names()...), ", ")
	return &FunctionError{Code: CodeUnknownFunction, Message: fmt.Sprintf("there is no function %q, expected one of %s", name, known)}
}

// EmitFunction is the name under which programs reach the engine's own emit: run("emit", {"type": …, "data": …}).
const EmitFunction = "emit"

// OnCluster declares a Function that relays carry out.
func OnCluster(name string) Function { return onCluster(name) }

type onCluster string

// Name is what programs call it.
func (f onCluster) Name() string { return string(f) }

// Location is Cluster, which is all that the engine needs to send it to a relay.
func (onCluster) Location() Location { return Cluster }

// Call refuses: to get here, the engine has mistaken it for one of its own.
func (f onCluster) Call(context.Context, Call) (any, error) {
	return nil, &FunctionError{Code: CodeInternal, Message: string(f) + " is carried out by a relay, not here"}
}
