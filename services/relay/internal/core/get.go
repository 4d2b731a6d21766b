package core

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// maxValue bounds an answer: NATS refuses messages above 1 MiB, and every value becomes part of a history.
const maxValue = 512 << 10

// parseGet reads the arguments of k8s.get. agent_id has brought the call here and is of no further use.
func parseGet(raw json.RawMessage) (Ref, error) {
	a, err := readArgs(raw)
	if err != nil {
		return Ref{}, err
	}
	a.known["agent_id"] = true
	ref := Ref{
		Kind:      Kind{APIVersion: a.text("api_version", false), Kind: a.text("kind", true)},
		Namespace: a.name("namespace", false),
		Name:      a.name("name", true),
	}
	if ref.Kind.Kind == "Secret" {
		a.problem("kind", "found \"Secret\", whose values must not become part of a workflow's history (D27)")
	}
	a.rest()
	return ref, a.err()
}

// get answers with the object and "found"; an absent object is {"found": false}, not an error.
func (r *Runner) get(ctx context.Context, call Call) (map[string]any, error) {
	ref, err := parseGet(call.Args)
	if err != nil {
		return nil, err
	}
	o, err := r.cluster.Get(ctx, ref)
	if fault.Is(err, fault.NotFound) {
		return map[string]any{"found": false}, nil
	}
	if err != nil {
		return nil, err
	}
	value := presentable(o)
	if b, err := json.Marshal(value); err != nil || len(b) > maxValue {
		return nil, &Error{Code: CodeTooLarge, Message: fmt.Sprintf("%s is larger than %d bytes", ref, maxValue)}
	}
	value["found"] = true
	return value, nil
}

// presentable is the object without the two parts that are large and of no use to a program. It copies what it
// changes: the object is the client's.
func presentable(o Object) map[string]any {
	value := maps.Clone(o)
	meta := maps.Clone(o.object("metadata"))
	if meta == nil {
		return value
	}
	delete(meta, "managedFields")
	if annotations := maps.Clone(o.object("metadata", "annotations")); annotations != nil {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		meta["annotations"] = map[string]any(annotations)
	}
	value["metadata"] = map[string]any(meta)
	return value
}
