package core

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Kind is the kind of an object. An empty APIVersion means the one that the relay knows for the kind.
type Kind struct {
	APIVersion, Kind string
}

// Ref names one object.
type Ref struct {
	Kind
	Namespace, Name string
}

// String formats the reference for messages: "Application argocd/shop".
func (r Ref) String() string {
	if r.Namespace == "" {
		return fmt.Sprintf("%s %s", r.Kind.Kind, r.Name)
	}
	return fmt.Sprintf("%s %s/%s", r.Kind.Kind, r.Namespace, r.Name)
}

// The kinds that the relay itself uses.
//
//nolint:gochecknoglobals // constants in all but name
var (
	applicationKind = Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "Application"}
	projectKind     = Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "AppProject"}
	rolloutKind     = Kind{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout"}
)

// Object is a Kubernetes object as decoded from JSON.
type Object map[string]any

// Cluster is the core's port to a cluster. Errors are classified: NotFound (the object is absent), Invalid (no such kind, or refused by
// validation), Denied, Conflict (changed since it was read, or exists already), Unavailable.
type Cluster interface {
	// Get reads one object. A kind that the cluster does not serve is an *Error with CodeUnknownKind.
	Get(ctx context.Context, ref Ref) (Object, error)
	// List reads the objects of a selection, at most limit of them; more reports whether there are others. Without a Namespace it reads
	// those of all.
	List(ctx context.Context, s Selection, limit int) (all []Object, more bool, err error)
	// Create creates one object.
	Create(ctx context.Context, ref Ref, o Object) error
	// DryCreate has the API server validate an object as if it were created, and returns what would be. Nothing is created.
	DryCreate(ctx context.Context, ref Ref, o Object) (Object, error)
	// Patch applies a JSON merge patch to the object or, if status is set, to its status. The patch contains the resource version that it
	// was decided on.
	Patch(ctx context.Context, ref Ref, patch Object, status bool) error
	// AwaitChange returns once the object has changed since the resource version, or after atMost, whichever is first. Without a watch it
	// only takes longer.
	AwaitChange(ctx context.Context, ref Ref, resourceVersion string, atMost time.Duration)
}

// at follows the path; nil if part of it is absent or not an object.
func (o Object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// text returns the string at the path, or "".
func (o Object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// object returns the object at the path, or nil.
func (o Object) object(path ...string) Object {
	m, _ := o.at(path...).(map[string]any)
	return m
}

// list returns the list at the path, or nil.
func (o Object) list(path ...string) []any {
	l, _ := o.at(path...).([]any)
	return l
}

// flag returns the boolean at the path, or false.
func (o Object) flag(path ...string) bool {
	b, _ := o.at(path...).(bool)
	return b
}

// number returns the whole number at the path. Its Go type depends on the decoder: int64 from the dynamic client, float64 from
// encoding/json.
func (o Object) number(path ...string) (int64, bool) {
	switch n := o.at(path...).(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), n == float64(int64(n))
	case int:
		return int64(n), true
	case json.Number: // the arguments of a call
		i, err := n.Int64()
		return i, err == nil
	default:
		return 0, false
	}
}

// resourceVersion changes with every write of the object, by any client; it can be compared but not ordered.
func (o Object) resourceVersion() string { return o.text("metadata", "resourceVersion") }

// precondition is the part of a patch that makes the API server refuse it if the object has changed since it was read.
func (o Object) precondition() map[string]any {
	return map[string]any{"resourceVersion": o.resourceVersion()}
}
