package activity

import (
	"context"
	"encoding/json"
	"time"
)

// Location says where a Function is carried out. The program that runs it does not see it. The numbers are stored with
// open calls (call.location).
type Location int

const (
	// InProcess Functions are called inside this service (git.commit, manifest.pin).
	InProcess Location = iota
	// Cluster Functions are carried out by the relay of the agent named by the argument agent_id (k8s.get, argo.sync).
	Cluster
	// Worker Functions are carried out by processes of an organization's own, which have registered them.
	Worker
	// Held is where a call is that waits for an approval, wherever its Function is carried out. No Function has it.
	Held
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
	// Effect states what it does to anything outside of this service. It is the same for the life of the process.
	Effect() Effect
	// Call carries it out. It may be called more than once with the same Call.ID, because a process can die between the
	// effect and its record: the effect must then happen once, and the same value come back.
	//
	// The value is what encoding/json can encode; it becomes part of the history, so it carries no secret, address,
	// time stamp of its own or stack trace. A *FunctionError is returned to the program; any other error is a
	// *FunctionError with code "internal" to the program. Call is never used for a Function of a cluster or a worker.
	Call(ctx context.Context, call Call) (any, error)
}

// Placed is a Function whose calls may not all be carried out in the same place.
type Placed interface {
	// LocationOf is where the call with these arguments is carried out. Arguments that cannot be read are refused wherever that is.
	LocationOf(args json.RawMessage) Location
}

// LocationOf is where a call is carried out.
func LocationOf(f Function, args json.RawMessage) Location {
	if placed, can := f.(Placed); can {
		return placed.LocationOf(args)
	}
	return f.Location()
}

// Checker is a Function that can say whether arguments fit it before anything is sent. The error is a *FunctionError that
// names the field.
type Checker interface {
	Check(args map[string]any) error
}

// Reporting is a Function of this process of whose answers the engine reports some to the domain service. They come from here, and no
// program can say them in its place.
type Reporting interface {
	// Report returns what is reported about an answer; false for nothing.
	Report(call Call, value json.RawMessage) (Report, bool)
	// Intent returns what is reported of a call before it is made, however it ends; false for nothing.
	Intent(call Call) (Report, bool)
}

// Report is an event about an answer. Of those about one thing of a run, one that says what the last has said is left out.
type Report struct {
	About, EventType string
	Data             json.RawMessage
}

// Pure is a Function of this process that can say of itself that it does nothing in the world and answers at once, from its arguments
// alone: nothing shows whether and when it was called. One that does not say so is not.
type Pure interface {
	Pure() bool
}

// IsPure reports whether a Function says that it is.
func IsPure(f Function) bool {
	p, can := f.(Pure)
	return can && f.Location() == InProcess && p.Pure()
}

// Sharing is a Function of this process that uses something of which one organization has at most so much at a time, together with other
// Functions that name the same share. Others wait, and take no place of other Functions meanwhile.
type Sharing interface {
	// Share names what is shared, and says how many calls of an organization have it at a time; 0 if nothing is.
	Share() (name string, most int)
}

// Computing is a Function of this process that can say of itself that it does nothing in the world and computes its answer from its
// arguments alone, which may take a while. Nothing is lost if an answer is not recorded: it is computed again.
type Computing interface {
	Computes() bool
}

// IsComputing reports whether a Function says that it is.
func IsComputing(f Function) bool {
	c, can := f.(Computing)
	return can && f.Location() == InProcess && c.Computes()
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
	// Secrets are the secret *references* of the workflow by name (D27): resolve them here, declare them to Conceal, and never return or log
	// the value.
	Secrets map[string]string
	// Attempt counts from 1. For an InProcess Function it starts anew after a restart.
	Attempt int
	// Trace is the execution's.
	Trace string
	// Deadline is when the engine stops waiting; ctx ends then as well.
	Deadline time.Time
}
