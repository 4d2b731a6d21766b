package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

// onManifest declares a Function that changes the text of a file, and touches nothing else.
func onManifest(name string, do func(args map[string]any) (map[string]any, error), arguments ...Field) *Function {
	return &Function{
		spec: Spec{
			Name: name, Location: core.InProcess, Retry: RetryNever, Idempotent: true,
			Arguments: append([]Field{{Name: "content", Type: Text, Required: true}}, arguments...),
		},
		do: func(_ context.Context, call core.Call) (any, error) { return do(call.Args) },
	}
}

// gatesField are canary weights.
func gatesField() Field {
	return Field{Name: "gates", Type: List, Element: &Field{Type: Number, Least: 1}}
}

// pin is manifest.pin: a plain manifest with other images and another strategy, and otherwise as it was.
func pin() *Function {
	return onManifest("manifest.pin",
		func(args map[string]any) (map[string]any, error) {
			routing, services := object(args, "routing"), object(args, "services")
			port, _ := whole(routing["service_port"])
			pinned, err := manifest.Pin([]byte(text(args, "content")), manifest.Request{
				RolloutName: text(args, "rollout_name"), Workload: text(args, "workload"), Strategy: text(args, "strategy"),
				Images: images(args, "container"), Gates: gates(args),
				Services: manifest.Services{Active: text(services, "active"), Preview: text(services, "preview")},
				Routing: manifest.Routing{
					Kind: text(routing, "kind"), StableService: text(routing, "stable_service"), CanaryService: text(routing, "canary_service"),
					VirtualService: text(routing, "virtual_service"), Routes: list(routing, "routes"), Ingress: text(routing, "ingress"), ServicePort: int(port),
				},
			})
			answer := result(pinned)
			answer["rollout_name"], answer["rollout_namespace"] = pinned.RolloutName, pinned.RolloutNamespace
			answer["containers"], answer["workload"], answer["steps"] = pinned.Containers, pinned.Workload, pinned.Steps
			return answer, err
		},
		Field{Name: "images", Type: List, Required: true, Element: imageField("container")},
		gatesField(),
		Field{Name: "rollout_name", Type: Text}, Field{Name: "workload", Type: Text},
		Field{Name: "strategy", Type: Text, OneOf: []string{manifest.Canary, manifest.BlueGreen}},
		Field{Name: "routing", Type: Object, Fields: []Field{
			{Name: "kind", Type: Text, Required: true},
			{Name: "stable_service", Type: Text},
			{Name: "canary_service", Type: Text},
			{Name: "virtual_service", Type: Text},
			{Name: "routes", Type: List, Element: &Field{Type: Text, Required: true}},
			{Name: "ingress", Type: Text},
			{Name: "service_port", Type: Number, Least: 1},
		}},
		Field{Name: "services", Type: Object, Fields: []Field{{Name: "active", Type: Text}, {Name: "preview", Type: Text}}})
}

// pinKustomization is manifest.pin_kustomization: a kustomization with other images.
func pinKustomization() *Function {
	return onManifest("manifest.pin_kustomization",
		func(args map[string]any) (map[string]any, error) {
			pinned, err := manifest.KustomizeImages([]byte(text(args, "content")), images(args, "name"))
			return result(pinned), err
		},
		Field{Name: "images", Type: List, Required: true, Element: imageField("name")})
}

// pinValues is manifest.pin_values: the values of a Helm chart with other images and canary steps.
func pinValues() *Function {
	return onManifest("manifest.pin_values",
		func(args map[string]any) (map[string]any, error) {
			var values []manifest.Value
			given, _ := args["values"].([]any)
			for _, v := range given {
				value, _ := v.(map[string]any)
				values = append(values, manifest.Value{Path: text(value, "path"), Reference: text(value, "reference"), Tag: text(value, "tag"), Gates: gates(value)})
			}
			pinned, err := manifest.HelmValues([]byte(text(args, "content")), values)
			return result(pinned), err
		},
		Field{Name: "values", Type: List, Required: true, Element: &Field{Type: Object, Fields: []Field{
			{Name: "path", Type: Text, Required: true}, {Name: "reference", Type: Text}, {Name: "tag", Type: Text}, gatesField(),
		}}})
}

// difference is manifest.diff: what differs between files before and after, for people to read; most bounds
// all of it, in bytes.
func difference() *Function {
	return &Function{
		spec: Spec{
			Name: "manifest.diff", Location: core.InProcess, Retry: RetryNever, Idempotent: true,
			Arguments: []Field{{Name: "files", Type: List, Required: true, Element: &Field{Type: Object, Fields: []Field{
				{Name: "path", Type: Text, Required: true},
				{Name: "before", Type: Text, Required: true, Empty: true},
				{Name: "after", Type: Text, Required: true, Empty: true},
			}}}, {Name: "most", Type: Number, Least: 1}},
		},
		do: func(_ context.Context, call core.Call) (any, error) {
			var files []manifest.Revision
			given, _ := call.Args["files"].([]any)
			for _, f := range given {
				file, _ := f.(map[string]any)
				files = append(files, manifest.Revision{Path: text(file, "path"), Before: text(file, "before"), After: text(file, "after")})
			}
			most, _ := whole(call.Args["most"])
			found, err := manifest.Diff(files, int(most))
			changes := make([]any, len(found))
			for i, c := range found {
				changes[i] = map[string]any{"path": c.Path, "diff": c.Diff, "truncated": c.Truncated}
			}
			return changes, err
		},
	}
}

// imageField is an image, told by a container's name or by the image's own.
func imageField(by string) *Field {
	return &Field{Type: Object, Fields: []Field{{Name: by, Type: Text, Required: true}, {Name: "reference", Type: Text, Required: true}}}
}

// result is what all three answer.
func result(pinned manifest.Result) map[string]any {
	return map[string]any{"content": string(pinned.Content), "digest": pinned.Digest, "changed": pinned.Changed}
}

func images(args map[string]any, by string) []manifest.Image {
	var all []manifest.Image
	given, _ := args["images"].([]any)
	for _, i := range given {
		image, _ := i.(map[string]any)
		all = append(all, manifest.Image{Container: text(image, by), Reference: text(image, "reference")})
	}
	return all
}

// gates are weights; nil where none were given, which leaves the strategy alone, and empty for none.
func gates(args map[string]any) []int {
	given, ok := args["gates"].([]any)
	if !ok {
		return nil
	}
	weights := make([]int, len(given))
	for i, g := range given {
		weight, _ := whole(g)
		weights[i] = int(weight)
	}
	return weights
}

// object is an argument that was checked; empty where it was not given.
func object(args map[string]any, name string) map[string]any {
	m, _ := args[name].(map[string]any)
	return m
}

func list(args map[string]any, name string) []string {
	given, _ := args[name].([]any)
	all := make([]string, len(given))
	for i, v := range given {
		all[i], _ = v.(string)
	}
	return all
}
