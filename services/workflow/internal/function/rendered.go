package function

import (
	"context"
	"errors"
	"maps"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

// compareRendered is manifest.compare_rendered.
func compareRendered(forge activity.Forge, charts activity.Charts, renderer activity.Renderer) *Function {
	forge, renderer = previewForge{forge}, previewRenderer{renderer}
	overlay, chart := renderKustomization(forge, renderer), renderChart(forge, charts, renderer)
	return &Function{
		spec: Spec{
			Name: "manifest.compare_rendered", Location: activity.InProcess, Web: true, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Reads,
			Doc: "Compares what a Kustomize overlay or a Helm chart makes of two commits of a Git repository. Answers `{resources, diffs, before, why}`:\n" +
				"`resources` are the first 30 objects that differ, such as `changed Deployment shop/api`, and `diffs` what differs in them,\n" +
				"`{object, diff, truncated}`, of at most 12 KiB, both as `git.read_change` answers them: sorted, and without values of secrets. What was\n" +
				"rendered is no part of the answer. `before` is why the first commit has nothing that can be rendered, and then all objects count as\n" +
				"added; it is empty if it has. `why` is why nothing is compared: the second commit cannot be rendered, or one of them cannot be read, or\n" +
				"takes more than it may, or what was rendered has more than 2,000 documents. Neither says what is in `values`.\n\n" +
				"Either is rendered as `manifest.kustomize` and `manifest.helm` do it, within their limits, behind what is deployed. A commit that the\n" +
				"server does not serve by its id is not searched for in the history of its branches.",
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
			before, err := renderedAt(ctx, overlay, chart, call, text(call.Args, "base"))
			if err != nil {
				return nil, err
			}
			after, err := renderedAt(ctx, overlay, chart, call, text(call.Args, "ref"))
			if err != nil {
				return nil, err
			}
			answer := map[string]any{"resources": []any{}, "diffs": []any{}, "before": before.problem, "why": after.problem}
			if after.problem != "" {
				return answer, nil
			}
			if before.unknown { // nothing says that it was not there
				answer["before"], answer["why"] = "", "before the change: "+before.problem
				return answer, nil
			}
			names, diffs, err := manifest.Renderings(ctx, before.content, after.content)
			if errors.Is(err, manifest.ErrTooManyDocuments) {
				answer["why"] = manifest.ErrTooManyDocuments.Error()
				return answer, nil
			}
			if err != nil {
				return nil, fault.Because(err, fault.Unavailable, "what was rendered was not compared to its end")
			}
			answer["resources"], answer["diffs"] = anyOf(names), diffsOf(diffs)
			return answer, nil
		},
	}
}

// previewForge reads commits alone: nobody waits for a preview for as long as the history of a repository may take.
type previewForge struct{ activity.Forge }

// ReadTree implements activity.Forge.
func (f previewForge) ReadTree(ctx context.Context, q activity.TreeRequest) (map[string][]byte, string, error) {
	q.Alone = true
	return f.Forge.ReadTree(ctx, q)
}

// previewRenderer has others go first.
type previewRenderer struct{ activity.Renderer }

// Kustomize implements activity.Renderer.
func (r previewRenderer) Kustomize(ctx context.Context, q activity.KustomizeRequest) (activity.Rendered, error) {
	q.Preview = true
	return r.Renderer.Kustomize(ctx, q)
}

// Helm implements activity.Renderer.
func (r previewRenderer) Helm(ctx context.Context, q activity.HelmRequest) (activity.Rendered, error) {
	q.Preview = true
	return r.Renderer.Helm(ctx, q)
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

// side is what an overlay or a chart makes of a commit, or why it makes nothing.
type side struct {
	content, problem string
	// unknown is whether the problem does not say what is in the commit.
	unknown bool
}

// renderedAt is one side of a comparison. The error means that this could not be found out now.
func renderedAt(ctx context.Context, overlay, chart *Function, call activity.Call, ref string) (found side, err error) {
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
	if err == nil {
		rendered, _ := answer.(map[string]any)
		found.content, _ = rendered["content"].(string)
		return found, nil
	}
	_, noPath := errors.AsType[activity.NoPathError](err)
	switch {
	case noPath, fault.Is(err, fault.Invalid):
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Refused):
		found.unknown = true
	default:
		return found, err
	}
	found.problem = manifest.Reason(fault.Public(err), text(one, "values"))
	return found, nil
}

// diffsOf are differences as answers have them.
func diffsOf(all []manifest.Change) []any {
	diffs := []any{}
	for _, d := range all {
		diffs = append(diffs, map[string]any{"object": d.Path, "diff": d.Diff, "truncated": d.Truncated})
	}
	return diffs
}
