package function

import (
	"context"
	"maps"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

// compareRendered is manifest.compare_rendered.
func compareRendered(forge activity.Forge, charts activity.Charts, renderer activity.Renderer) *Function {
	overlay, chart := renderKustomization(forge, renderer), renderChart(forge, charts, renderer)
	return &Function{
		spec: Spec{
			Name: "manifest.compare_rendered", Location: activity.InProcess, Web: true, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Reads,
			Doc: "Compares what a Kustomize overlay or a Helm chart makes of two commits of a Git repository. Answers `{resources, diffs, before, why}`:\n" +
				"`resources` are the first 30 objects that differ, such as `changed Deployment shop/api`, and `diffs` what differs in them,\n" +
				"`{object, diff, truncated}`, of at most 12 KiB, both as `git.read_change` answers them: sorted, and without values of secrets. What was\n" +
				"rendered is no part of the answer. `before` is why the first commit cannot be rendered, and then all objects count as added; it is empty\n" +
				"if it can. `why` is the same for the second commit; then nothing is compared.\n\n" +
				"Either is rendered as `manifest.kustomize` and `manifest.helm` do it, within their limits.",
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`, or `ssh://…` with an SSH key.", Type: Text, Required: true},
				{Name: "base", Doc: "The commit before: a branch, tag or commit.", Type: Text, Required: true},
				{Name: "ref", Doc: "The commit after.", Type: Text, Required: true},
				{Name: "kustomize", Doc: "The overlay, with arguments of `manifest.kustomize`. Either it or `helm` is needed.", Type: Object, Fields: overlayFields()},
				{Name: "helm", Doc: "The chart, with arguments of `manifest.helm`.", Type: Object, Fields: chartFields()},
				gitCredentialField(),
			},
			Check: checkRendered,
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			before, problem, err := renderedAt(ctx, overlay, chart, call, text(call.Args, "base"))
			if err != nil {
				return nil, err
			}
			answer := map[string]any{"resources": []any{}, "diffs": []any{}, "before": problem, "why": ""}
			after, problem, err := renderedAt(ctx, overlay, chart, call, text(call.Args, "ref"))
			if err != nil {
				return nil, err
			}
			if problem != "" {
				answer["why"] = problem
				return answer, nil
			}
			names, diffs, err := manifest.Renderings(ctx, before, after)
			if err != nil {
				return nil, fault.Because(err, fault.Unavailable, "what was rendered was not compared to its end")
			}
			answer["resources"], answer["diffs"] = anyOf(names), diffsOf(diffs)
			return answer, nil
		},
	}
}

// checkRendered finds what does not fit together.
func checkRendered(args map[string]any) []fault.Field {
	helm, isChart := args["helm"].(map[string]any)
	_, isOverlay := args["kustomize"].(map[string]any)
	if isChart == isOverlay {
		return []fault.Field{{Name: "kustomize", Problem: "expected either kustomize or helm"}}
	}
	if isOverlay {
		return nil
	}
	helm = maps.Clone(helm)
	helm["repo_url"], helm["ref"] = text(args, "repo_url"), text(args, "ref")
	wrong := checkChart(helm)
	for i := range wrong {
		wrong[i].Name = "helm." + wrong[i].Name
	}
	return wrong
}

// renderedAt is what the overlay or the chart of a call makes of a commit, or why it cannot be rendered. The error means that this could
// not be found out now.
func renderedAt(ctx context.Context, overlay, chart *Function, call activity.Call, ref string) (content, problem string, err error) {
	by, args := overlay, call.Args["kustomize"]
	if _, is := call.Args["helm"].(map[string]any); is {
		by, args = chart, call.Args["helm"]
	}
	given, _ := args.(map[string]any)
	one := maps.Clone(given)
	one["repo_url"], one["ref"] = text(call.Args, "repo_url"), ref
	if login, named := call.Args["credential"]; named {
		one["credential"] = login
	}
	call.Args = one
	answer, err := by.do(ctx, call)
	switch {
	case err == nil:
		found, _ := answer.(map[string]any)
		content, _ = found["content"].(string)
		return content, "", nil
	case fault.Is(err, fault.Invalid), fault.Is(err, fault.NotFound), fault.Is(err, fault.Refused):
		return "", manifest.Reason(fault.Public(err)), nil
	default:
		return "", "", err
	}
}

// diffsOf are differences as answers have them.
func diffsOf(all []manifest.Change) []any {
	diffs := []any{}
	for _, d := range all {
		diffs = append(diffs, map[string]any{"object": d.Path, "diff": d.Diff, "truncated": d.Truncated})
	}
	return diffs
}
