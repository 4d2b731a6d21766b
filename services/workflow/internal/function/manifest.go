package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/pkg/secret/redact"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

// onManifest declares a Function that changes the text of a file, and touches nothing else.
func onManifest(name, doc string, do func(args map[string]any) (map[string]any, error), arguments ...Field) *Function {
	return &Function{
		spec: Spec{
			Name: name, Doc: doc, Location: activity.InProcess, Retry: RetryNever, Idempotent: true, Effect: activity.Reads,
			Arguments: append([]Field{{Name: "content", Doc: "The file's text.", Type: Text, Required: true}}, arguments...),
		},
		do: func(_ context.Context, call activity.Call) (any, error) { return do(call.Args) },
	}
}

// gatesField are canary weights.
func gatesField() Field {
	return Field{
		Name: "gates", Type: List, Element: &Field{Type: Number, Least: 1},
		Doc: "The weights at which the canary stops, in percent. Each becomes a step `setWeight` and a pause without a duration. Without it the steps stay as they are.",
	}
}

// pin is manifest.pin: a plain manifest with other images and another strategy, and otherwise as it was.
func pin() *Function {
	return onManifest("manifest.pin",
		"Sets the images, and the strategy, of an Argo Rollout in a plain manifest, and leaves everything else as it is. Answers `{content,\n"+
			"digest, changed, rollout_name, rollout_namespace, containers, workload, steps}`; `steps` are the canary steps that the manifest has\n"+
			"now, an empty list if it has none.",
		func(args map[string]any) (map[string]any, error) {
			routing, services := object(args, "routing"), object(args, "services")
			port, _ := whole(routing["service_port"])
			pinned, err := manifest.Pin([]byte(text(args, "content")), manifest.Request{
				RolloutName: text(args, "rollout_name"), Workload: text(args, "workload"), Strategy: text(args, "strategy"),
				Images: images(args, "container"), Gates: gates(args),
				Services: manifest.Services{Active: text(services, "active"), Preview: text(services, "preview")},
				Routing: manifest.Routing{
					Kind: text(routing, "kind"), StableService: text(routing, "stable_service"), CanaryService: text(routing, "canary_service"),
					VirtualService: text(routing, "virtual_service"), Routes: list(routing, "routes"), Ingress: text(routing, "ingress"),
					ServicePort: int(port),
				},
			})
			answer := result(pinned)
			answer["rollout_name"], answer["rollout_namespace"] = pinned.RolloutName, pinned.RolloutNamespace
			answer["containers"], answer["workload"], answer["steps"] = pinned.Containers, pinned.Workload, pinned.Steps
			return answer, err
		},
		Field{Name: "images", Doc: "The images to set.", Type: List, Required: true, Element: imageField("container", "The container's name.")},
		gatesField(),
		Field{Name: "rollout_name", Doc: "The Rollout, if the file has several.", Type: Text},
		Field{
			Name: "workload", Type: Text,
			Doc: "Sets the images in this object instead, as `kind/name`: the one that a Rollout in another file takes its pods from.",
		},
		Field{
			Name: "strategy", Doc: "The Rollout's strategy; canary by default.", Type: Text,
			OneOf: []string{manifest.Canary, manifest.BlueGreen},
		},
		Field{Name: "routing", Doc: "How a canary's traffic is routed.", Type: Object, Fields: []Field{
			{Name: "kind", Doc: "The traffic router: `istio`, `nginx` or `alb`.", Type: Text, Required: true},
			{Name: "stable_service", Doc: "The Service of the stable version.", Type: Text},
			{Name: "canary_service", Doc: "The Service of the new version.", Type: Text},
			{Name: "virtual_service", Doc: "Istio's VirtualService.", Type: Text},
			{Name: "routes", Doc: "The HTTP routes of the VirtualService.", Type: List, Element: &Field{Type: Text, Required: true}},
			{Name: "ingress", Doc: "The Ingress, for NGINX and ALB.", Type: Text},
			{Name: "service_port", Doc: "The port of the Services, for ALB.", Type: Number, Least: 1},
		}},
		Field{Name: "services", Doc: "The Services of a blue-green Rollout.", Type: Object, Fields: []Field{
			{Name: "active", Doc: "The Service of the version that has the traffic.", Type: Text},
			{Name: "preview", Doc: "The Service of the new version before it is promoted.", Type: Text},
		}})
}

// pinKustomization is manifest.pin_kustomization: a kustomization with other images.
func pinKustomization() *Function {
	return onManifest("manifest.pin_kustomization", "Sets images in a kustomization. Answers `{content, digest, changed}`.",
		func(args map[string]any) (map[string]any, error) {
			pinned, err := manifest.KustomizeImages([]byte(text(args, "content")), images(args, "name"))
			return result(pinned), err
		},
		Field{
			Name: "images", Doc: "The images to set.", Type: List, Required: true,
			Element: imageField("name", "The image's name in the manifests."),
		})
}

// pinValues is manifest.pin_values: the values of a Helm chart with other images and canary steps.
func pinValues() *Function {
	return onManifest("manifest.pin_values",
		"Sets images, and the gates of a canary, in the values of a Helm chart. Answers `{content, digest, changed}`.",
		func(args map[string]any) (map[string]any, error) {
			var values []manifest.Value
			given, _ := args["values"].([]any)
			for _, v := range given {
				value, _ := v.(map[string]any)
				values = append(values, manifest.Value{
					Path: text(value, "path"), Reference: text(value, "reference"), Tag: text(value, "tag"),
					Gates: gates(value),
				})
			}
			pinned, err := manifest.HelmValues([]byte(text(args, "content")), values)
			return result(pinned), err
		},
		Field{Name: "values", Doc: "The values to set.", Type: List, Required: true, Element: &Field{Type: Object, Fields: []Field{
			{Name: "path", Doc: "The value's dotted path, such as `api.image`.", Type: Text, Required: true},
			{
				Name: "reference", Type: Text,
				Doc: "The image. It is written as the value has it: as text, as repository and digest, or as repository and tag.",
			},
			{Name: "tag", Doc: "The tag to write in front of a digest, where a chart has only a value for the tag.", Type: Text},
			gatesField(),
		}}})
}

// editFile is manifest.edit: any file of text with other values.
func editFile() *Function {
	f := onManifest("manifest.edit",
		"Replaces values in a file, one after the other, and leaves every other byte as it is. Answers `{content, digest, changed}`. Each edit has one\n"+
			"of `yaml`, `json`, `hcl` and `regex`, of at most 500 bytes; what it names has to be there already, and once. There are at most 100 edits.\n"+
			"The file has at most 1 MiB before and after. What cannot be edited safely is refused, with the code `invalid`.",
		nil,
		Field{Name: "edits", Doc: "The edits to make.", Type: List, Required: true, Element: &Field{Type: Object, Fields: []Field{
			{Name: "yaml", Doc: "The dotted path of a value in YAML, such as `api.image.tag`. The file has one document.", Type: Text},
			{Name: "json", Doc: "The dotted path of a member in JSON.", Type: Text},
			{
				Name: "hcl", Type: Text,
				Doc: "An attribute in HCL with a plain value on a line of its own: types and labels of the blocks around it and its name, such as " +
					"`module.api.image`. Files with heredocs or comments `/* */` are refused.",
			},
			{
				Name: "regex", Type: Text,
				Doc: "A regular expression (RE2) with one group, which is replaced in every match: at most 1000, fewer in a large file. The group has to match " +
					"exactly the value afterwards.",
			},
			{
				Name: "value", Type: Text, Required: true,
				Doc: "The value. A number or `true` and `false` stay one where the new value is one, too, as JSON writes it and with at most 15 characters; " +
					"otherwise it becomes text. For `regex` and `hcl` it has no line breaks and control characters.",
			},
		}}})
	f.do = func(ctx context.Context, call activity.Call) (any, error) {
		var edits []manifest.Edit
		given, _ := call.Args["edits"].([]any)
		for _, e := range given {
			one, _ := e.(map[string]any)
			edits = append(edits, manifest.Edit{
				YAML: text(one, "yaml"), JSON: text(one, "json"), HCL: text(one, "hcl"), Regex: text(one, "regex"), Value: text(one, "value"),
			})
		}
		edited, err := manifest.EditFile(ctx, []byte(text(call.Args, "content")), edits)
		return result(edited), err
	}
	return f
}

// difference is manifest.diff: what differs between files before and after, for people to read; most bounds
// all of it, in bytes.
func difference() *Function {
	return &Function{
		spec: Spec{
			Name: "manifest.diff", Location: activity.InProcess, Retry: RetryNever, Idempotent: true, Effect: activity.Reads,
			Doc: "Compares files before and after a change, for people to read. Answers a list of `{path, diff, truncated}` with a unified diff of each\n" +
				"file that differs. What looks like a secret (keys, tokens, passwords) is `(hidden)`; where it differs, `(hidden, as it was)` and\n" +
				"`(hidden, as it will be)`. It finds the forms that secrets commonly have, not every secret; who compares files of Secrets keeps\n" +
				"them sealed, or compares the objects with manifest.redact.",
			Arguments: []Field{
				{Name: "files", Doc: "The files to compare.", Type: List, Required: true, Element: revisionField()},
				{Name: "most", Doc: "The maximum size of all diffs together in bytes.", Type: Number, Least: 1},
			},
		},
		do: func(_ context.Context, call activity.Call) (any, error) {
			most, _ := whole(call.Args["most"])
			found, err := manifest.DiffShown(revisions(call.Args), int(most))
			changes := make([]any, len(found))
			for i, c := range found {
				changes[i] = map[string]any{"path": c.Path, "diff": c.Diff, "truncated": c.Truncated}
			}
			return changes, err
		},
	}
}

// redactSecrets is manifest.redact: an object as it may be recorded and shown.
func redactSecrets() *Function {
	return &Function{
		spec: Spec{
			Name: "manifest.redact", Location: activity.InProcess, Computes: true, Retry: RetryNever, Idempotent: true, Effect: activity.Reads,
			Doc: "Takes out of an object what looks like a secret: values with the name of one, tokens of well-known systems, passwords in URLs and\n" +
				"in texts. Answers `{value, redacted}`, where `redacted` reports whether anything is `[redacted]`. What only refers to a secret stays. It finds\n" +
				"the forms that secrets commonly have, not every secret. Of what is redacted on both sides it is not known whether it differs.",
			Arguments: []Field{{Name: "value", Doc: "The object.", Type: Free, Required: true}},
		},
		do: func(_ context.Context, call activity.Call) (any, error) {
			value, redacted := redact.Value(call.Args["value"])
			return map[string]any{"value": value, "redacted": redacted}, nil
		},
	}
}

// imageField is an image, identified by a container's name or by the image's own.
func imageField(by, doc string) *Field {
	return &Field{Type: Object, Fields: []Field{
		{Name: by, Doc: doc, Type: Text, Required: true},
		{Name: "reference", Doc: "The image to run, as `registry/repository:tag` or `…@sha256:…`.", Type: Text, Required: true},
	}}
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
