package core

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Selection says which objects are followed: of one kind and namespace, one by its name, or those with certain labels.
type Selection struct {
	Kind
	Namespace, Name, Labels string
}

// Watch is what the control plane wants to be told of (D20).
type Watch struct {
	// ID is whose watch it is; every observation carries it.
	ID string
	Selection
	// Fields are the dotted paths whose changes matter.
	Fields []string
	// Report, one of the Report constants, asks for what the object means in place of its fields; Expected is the revision
	// that it compares with.
	Report, Expected string
}

// WatchSet is everything that the control plane wants watched, at a time by its clock: it takes the place of every
// earlier set. Lease is how long it holds without being told again.
type WatchSet struct {
	AsOf    time.Time
	Lease   time.Duration
	Watches []Watch
}

// Observation is the state of one object under a watch.
type Observation struct {
	Watch Watch
	// Name is the object's.
	Name string
	// Object is the projection; nil where there is no such object, or Err is set.
	Object Object
	// Report is what the watch has asked for, if it asks for a report.
	Report map[string]any
	// Err says that the watch cannot be had just now, and why.
	Err *Error
	At  time.Time
}

// Rollout is the status of the Argo Rollout that was observed, if it was one.
func (o Observation) Rollout() (RolloutStatus, bool) {
	if o.Object == nil || o.Report != nil || !isRollout(o.Watch.Kind) {
		return RolloutStatus{}, false
	}
	return StatusOf(o.Object), true
}

// Change is what following a selection tells. The zero value says that every object that was there has been told of.
type Change struct {
	// Name is the object's, Object its present state; nil when it is gone.
	Name   string
	Object Object
	// Err says why they cannot be followed; following goes on trying. Reached says that it works again.
	Err     error
	Reached bool
}

// Follower follows objects in a cluster.
type Follower interface {
	// Follow tells of every object of the selection as it is and whenever it changes, until ctx ends. It tells one thing at
	// a time. Objects that are told of must not be changed.
	Follow(ctx context.Context, s Selection, tell func(Change))
}

// Observer takes observations. The error's class decides whether the same is told again: Unavailable is.
type Observer interface {
	Observe(ctx context.Context, o Observation) error
}

// checkWatch refuses a watch that cannot be followed.
func checkWatch(w Watch) *Error {
	var problem string
	switch {
	case readable(w.Kind) != "":
		problem = "kind: " + readable(w.Kind)
	case w.Name == "" && w.Labels == "":
		problem = "name: missing, expected a name or a label selector"
	case len(w.Fields) == 0 && w.Report == "":
		problem = "fields: missing, expected the paths whose changes matter"
	default:
		return nil
	}
	return &Error{Code: CodeInvalid, Message: problem}
}

// lasting is an error of following that stays until somebody does something about it; nil for a cluster that is away,
// which heartbeats tell of.
func lasting(err error) *Error {
	if err == nil || fault.Is(err, fault.Unavailable) || fault.Is(err, fault.NotFound) {
		return nil
	}
	return asError(err)
}
