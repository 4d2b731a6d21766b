package core

import (
	"context"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Selection selects the objects to follow: of one kind and namespace, one by name, or those with certain labels.
type Selection struct {
	Kind
	Namespace, Name, Labels string
}

// Watch is a watch requested by the control plane (D20).
type Watch struct {
	// ID identifies the watch; every observation carries it.
	ID string
	Selection
	// Fields are the dotted paths whose changes matter.
	Fields []string
	// Report, one of the Report constants, requests an interpretation of the object in place of its fields; Expected is the revision that
	// it compares with.
	Report, Expected string
}

// WatchSet is the complete set of watches, at a time by the control plane's clock: it replaces every earlier set. Lease is how long it is
// valid unless it is renewed.
type WatchSet struct {
	AsOf    time.Time
	Lease   time.Duration
	Watches []Watch
}

// Observation is the state of one object under a watch.
type Observation struct {
	Watch Watch
	// Name is the name of the object.
	Name string
	// Object is the projection; nil if there is no such object, or Err is set.
	Object Object
	// Report is the report, if the watch requests one.
	Report map[string]any
	// Err is set if the watch cannot be served at the moment, with the reason.
	Err *Error
	At  time.Time
}

// Rollout returns the status of the observed Argo Rollout, if it is one.
func (o Observation) Rollout() (RolloutStatus, bool) {
	if o.Object == nil || o.Report != nil || !isRollout(o.Watch.Kind) {
		return RolloutStatus{}, false
	}
	return StatusOf(o.Object), true
}

// Change is a change of a followed selection. The zero value means that all existing objects have been reported.
type Change struct {
	// Name is the object's name, Object its present state; nil if it was deleted.
	Name   string
	Object Object
	// Err is the reason if they cannot be followed; following retries. Reached reports that it works again.
	Err     error
	Reached bool
}

// Follower follows objects in a cluster.
type Follower interface {
	// Follow reports every object of the selection as it is, and every change, until ctx ends. It calls report sequentially. The reported
	// objects must not be modified.
	Follow(ctx context.Context, s Selection, report func(Change))
}

// Observer publishes observations. An error of class Unavailable is retried.
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

// lasting returns an error of following that needs intervention; nil for an unreachable cluster, which heartbeats report.
func lasting(err error) *Error {
	if err == nil || fault.Is(err, fault.Unavailable) || fault.Is(err, fault.NotFound) {
		return nil
	}
	return asError(err)
}
