package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/function/manifest"
)

// listed is what the answers of comparisons have in common.
const listed = "`things` are at most 100 `{kind, action, object, detail}`, the gravest first: `kind` is `image`, `pod_template`, `config_map`, `secret`,\n" +
	"`replicas` or `other`, `action` is `added`, `removed` or `changed`, and `detail` shows images and numbers of replicas. `workloads` is the number of\n" +
	"objects with pods in the files. `unread` are files whose difference has no names: templates, values, patches, lists, links, and what is too large."

// compareManifests is manifest.compare.
func compareManifests() *Function {
	return &Function{
		spec: Spec{
			Name: "manifest.compare", Location: activity.InProcess, Retry: RetryNever, Idempotent: true, Effect: activity.Reads,
			Doc:       "Compares manifests before and after a change. Answers `{workloads, things, unread}`.\n\n" + listed,
			Arguments: []Field{{Name: "files", Doc: "The files to compare.", Type: List, Required: true, Element: revisionField()}},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			found, err := manifest.Compare(ctx, revisions(call.Args))
			if err != nil {
				return nil, err
			}
			return comparisonAnswer(found), nil
		},
	}
}

// revisionField is a file before and after.
func revisionField() *Field {
	return &Field{Type: Object, Fields: []Field{
		{Name: "path", Doc: "The file's path.", Type: Text, Required: true},
		{Name: "before", Doc: "Its text before; empty for a file that did not exist.", Type: Text, Required: true, Empty: true},
		{Name: "after", Doc: "Its text after; empty for a file that was deleted.", Type: Text, Required: true, Empty: true},
	}}
}

func revisions(args map[string]any) []manifest.Revision {
	var files []manifest.Revision
	given, _ := args["files"].([]any)
	for _, f := range given {
		file, _ := f.(map[string]any)
		files = append(files, manifest.Revision{Path: text(file, "path"), Before: text(file, "before"), After: text(file, "after")})
	}
	return files
}

func comparisonAnswer(c manifest.Comparison) map[string]any {
	things := make([]any, len(c.Things))
	for i, t := range c.Things {
		one := map[string]any{"kind": t.Kind, "action": t.Action, "object": t.Object}
		if t.Detail != "" {
			one["detail"] = t.Detail
		}
		things[i] = one
	}
	return map[string]any{"workloads": c.Workloads, "things": things, "unread": anyOf(c.Unread)}
}

// readDifference is git.compare.
func readDifference(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.compare", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Compares the manifests of two commits of a Git repository. Answers `{base, head, workloads, things, unread, more}`: the commits, what differs, and\n" +
				"whether more than 50 files do, of which 50 are compared.\n\n" + listed,
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`, or `ssh://…` with an SSH key.", Type: Text, Required: true},
				{Name: "base", Doc: "The commit before: a branch, tag or commit.", Type: Text, Required: true},
				{Name: "ref", Doc: "The commit after.", Type: Text, Required: true},
				{Name: "path", Doc: "The folder whose files are compared; by default all.", Type: Text},
				{Name: "files", Doc: "Files outside of it that are compared as well.", Type: List, Element: &Field{Type: Text, Required: true}},
				gitCredentialField(),
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			d, err := forge.ReadDifference(withLogin(ctx, call), activity.DifferenceRequest{
				Organization: call.Organization, RepoURL: text(call.Args, "repo_url"), Base: text(call.Args, "base"), Ref: text(call.Args, "ref"),
				Under: text(call.Args, "path"), Also: list(call.Args, "files"),
			})
			if err != nil {
				return nil, err
			}
			var files []manifest.Revision
			for _, f := range d.Files {
				files = append(files, manifest.Revision{Path: f.Path, Before: string(f.Before), After: string(f.After), Unread: f.Unread})
			}
			found, err := manifest.Compare(ctx, files)
			if err != nil {
				return nil, err
			}
			answer := comparisonAnswer(found)
			answer["base"], answer["head"], answer["more"] = d.Base, d.Head, d.More
			return answer, nil
		},
	}
}
