package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

// pin is manifest.pin: the manifest with other images and other canary steps, and otherwise as it was.
func pin() *Function {
	return &Function{
		spec: Spec{
			Name: "manifest.pin", Location: core.InProcess, Retry: RetryNever, Idempotent: true,
			Arguments: []Field{
				{Name: "content", Type: Text, Required: true},
				{Name: "images", Type: List, Required: true, Element: &Field{Type: Object, Fields: []Field{
					{Name: "container", Type: Text, Required: true},
					{Name: "reference", Type: Text, Required: true},
				}}},
				{Name: "gates", Type: List, Element: &Field{Type: Number, Least: 1}},
				{Name: "rollout_name", Type: Text},
			},
		},
		do: func(_ context.Context, call core.Call) (any, error) {
			r := manifest.Request{RolloutName: text(call.Args, "rollout_name")}
			images, _ := call.Args["images"].([]any)
			for _, i := range images {
				image, _ := i.(map[string]any)
				r.Images = append(r.Images, manifest.Image{Container: text(image, "container"), Reference: text(image, "reference")})
			}
			if gates, given := call.Args["gates"].([]any); given {
				r.Gates = make([]int, len(gates))
				for i, g := range gates {
					weight, _ := whole(g)
					r.Gates[i] = int(weight)
				}
			}
			pinned, err := manifest.Pin([]byte(text(call.Args, "content")), r)
			if err != nil {
				return nil, err
			}
			return map[string]any{
				"content": string(pinned.Content), "digest": pinned.Digest, "changed": pinned.Changed,
				"rollout_name": pinned.RolloutName, "rollout_namespace": pinned.RolloutNamespace, "containers": pinned.Containers,
			}, nil
		},
	}
}
