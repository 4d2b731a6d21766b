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

// parseGet parses the arguments of k8s.get. agent_id has been used for routing.
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
	if problem := readable(ref.Kind); problem != "" {
		a.problem("kind", "%s", problem)
	}
	a.rest()
	return ref, a.err()
}

// readable returns why programs may not read or watch objects of a kind; "" if they may.
func readable(k Kind) string {
	if k.Kind == "Secret" {
		return "found \"Secret\", whose values must not become part of a workflow's history"
	}
	return ""
}

// get returns the object and "found"; an absent object is {"found": false}, not an error.
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

// presentable returns the object without two parts that are large and useless to a program. It copies what it changes: the object belongs
// to the client.
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

// maxListed is the maximum number of objects in an answer of k8s.list.
const maxListed = 100

// parseList parses the arguments of k8s.list.
func parseList(raw json.RawMessage) (Selection, []string, error) {
	a, err := readArgs(raw)
	if err != nil {
		return Selection{}, nil, err
	}
	a.known["agent_id"] = true
	s := Selection{
		Kind:      Kind{APIVersion: a.text("api_version", false), Kind: a.text("kind", true)},
		Namespace: a.name("namespace", false), Labels: a.text("labels", false),
	}
	if problem := readable(s.Kind); problem != "" {
		a.problem("kind", "%s", problem)
	}
	a.known["fields"] = true
	var fields []string
	given, _ := a.values["fields"].([]any)
	for i, f := range given {
		text, isText := f.(string)
		if !isText || text == "" {
			a.problem(fmt.Sprintf("fields[%d]", i), "found %s, expected a dotted path", describe(f))
		}
		fields = append(fields, text)
	}
	if len(fields) == 0 {
		a.problem("fields", "found none, expected the paths to return for each object")
	}
	a.rest()
	return s, fields, a.err()
}

// list returns the requested fields of each object, with its name and namespace. truncated means that there are more.
func (r *Runner) list(ctx context.Context, call Call) (map[string]any, error) {
	s, fields, err := parseList(call.Args)
	if err != nil {
		return nil, err
	}
	all, more, err := r.cluster.List(ctx, s, maxListed)
	if err != nil {
		return nil, err
	}
	items := make([]any, len(all))
	for i, o := range all {
		items[i] = map[string]any(Project(o, append([]string{"metadata.namespace", "metadata.name"}, fields...)))
	}
	value := map[string]any{"items": items, "truncated": more}
	if b, err := json.Marshal(value); err != nil || len(b) > maxValue {
		return nil, &Error{Code: CodeTooLarge, Message: fmt.Sprintf("%d objects of kind %s are larger than %d bytes with the requested fields",
			len(all), s.Kind.Kind, maxValue)}
	}
	return value, nil
}
