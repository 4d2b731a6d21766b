package function

import (
	"context"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// The bounds of what is read for one rendering.
const (
	mostFiles = 2000
	mostBytes = 8 << 20
)

// treeFields name what is read of a repository.
func treeFields(required bool) []Field {
	return []Field{
		{Name: "repo_url", Doc: "The repository's URL, `https://…`, or `ssh://…` with an SSH key.", Type: Text, Required: required},
		{Name: "ref", Doc: "A branch, tag or commit.", Type: Text, Required: required},
		gitCredentialField(),
	}
}

// renderKustomization is manifest.kustomize.
func renderKustomization(forge activity.Forge, renderer activity.Renderer) *Function {
	return &Function{
		spec: Spec{
			Name: "manifest.kustomize", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Builds a Kustomize overlay of a Git repository. Answers `{content, sha}`: the manifests, and the commit that was read.\n\n" +
				"It is what `kustomize build` prints: without plugins, without `helmCharts`, and without what is remote, which are the error `invalid`,\n" +
				"and so are links and submodules below `root`. An overlay is built in a process of its own without network and files. At most 2,000 files\n" +
				"of 8 MiB are read, and 4 MiB are answered; the time grows with the square of the number of objects, and some hundreds are well within\n" +
				"the default limit. What takes more, or more memory and time than the operator allows, is the error `refused`.",
			Arguments: append(treeFields(true), overlayFields()...),
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			folder := cleanPath(text(call.Args, "path"))
			if root := cleanPath(text(call.Args, "root")); root != "" && folder != root && !strings.HasPrefix(folder, root+"/") {
				return nil, fault.InvalidFields(fault.Field{Name: "path", Problem: "found " + folder + ", expected a folder below root"})
			}
			files, sha, err := readTree(ctx, forge, call, text(call.Args, "root"))
			if err != nil {
				return nil, err
			}
			out, err := renderer.Kustomize(ctx, activity.KustomizeRequest{Organization: call.Organization, Files: files, Path: folder})
			if err != nil {
				return nil, err
			}
			return map[string]any{"content": out.Text, "sha": sha}, nil
		},
	}
}

// renderChart is manifest.helm.
func renderChart(forge activity.Forge, charts activity.Charts, renderer activity.Renderer) *Function {
	return &Function{
		spec: Spec{
			Name: "manifest.helm", Location: activity.InProcess, Web: true, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
			Doc: "Renders a Helm chart of an OCI registry or of a Git repository. Answers `{content, sha, digest, chart}`: the manifests, the commit that\n" +
				"was read, the digest of a chart from a registry, and `{name, version, app_version}` of the chart.\n\n" +
				"It is what `helm template` prints: `lookup` finds nothing, and random functions answer something else each time. `NOTES.txt`, `crds/`,\n" +
				"tests and what `.helmignore` names are left out. Other hooks are an error, unless `skip_hooks` leaves them out: nothing would run them.\n" +
				"Dependencies have to be in `charts/`. A chart is rendered in a process of its own without network and files; an archive has at most\n" +
				"4 MiB, 20 MiB unpacked, and the answer 4 MiB. What takes more, or more memory and time than the operator allows, is the error `refused`.",
			Arguments: append(treeFields(false), chartFields()...),
			Check:     checkChart,
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			skip, _ := call.Args["skip_hooks"].(bool)
			q := activity.HelmRequest{
				Organization: call.Organization, Release: text(call.Args, "release"), Namespace: text(call.Args, "namespace"),
				KubeVersion: text(call.Args, "kube_version"), APIVersions: list(call.Args, "api_versions"), SkipHooks: skip,
			}
			answer := map[string]any{}
			if err := chartFiles(ctx, forge, call, &q, answer); err != nil {
				return nil, err
			}
			if values := text(call.Args, "values"); values != "" {
				q.Values = append(q.Values, values)
			}
			if chart := text(call.Args, "chart"); chart != "" {
				pulled, err := charts.Pull(ctx, activity.ChartRequest{
					Organization: call.Organization, Reference: referenceOf(chart, text(call.Args, "version")),
					Credential: text(call.Args, "chart_credential"), Secrets: call.Secrets,
				})
				if err != nil {
					return nil, err
				}
				q.Archive, answer["digest"] = pulled.Archive, pulled.Digest
			}
			out, err := renderer.Helm(ctx, q)
			if err != nil {
				return nil, err
			}
			answer["content"] = out.Text
			if out.Chart != nil {
				answer["chart"] = map[string]any{"name": out.Chart.Name, "version": out.Chart.Version, "app_version": out.Chart.AppVersion}
			}
			return answer, nil
		},
	}
}

// overlayFields are the arguments of an overlay beside its repository.
func overlayFields() []Field {
	return []Field{
		{Name: "path", Doc: "The folder of the overlay; by default the root of the repository.", Type: Text},
		{Name: "root", Doc: "The folder that has the overlay and its bases, and that is read; by default the whole repository.", Type: Text},
	}
}

// chartFields are the arguments of a chart beside its repository.
func chartFields() []Field {
	return []Field{
		{
			Name: "chart", Type: Text,
			Doc: "The repository of the chart in a registry, `oci://host/path`; the host has a dot or a port. Either `chart` or `path` is needed.",
		},
		{Name: "version", Doc: "The version of `chart`, or its digest, `sha256:…`.", Type: Text},
		{
			Name: "chart_credential", Type: Text,
			Doc: "The name of a credential for the registry: one of the organization of kind registry, or one as of `http.request`, a user name and a " +
				"password or a token. Its URLs have to cover the repository (`https://host/path`; one that is sent without TLS needs `http://`). By default none.",
		},
		{Name: "path", Doc: "The folder of the chart in the Git repository.", Type: Text},
		{
			Name: "value_files", Doc: "Files of the Git repository with values; a later one wins.", Type: List, Element: &Field{Type: Text, Required: true},
		},
		{Name: "values", Doc: "More values, as YAML; they win.", Type: Text},
		{Name: "release", Doc: "What the chart sees as the name of its release.", Type: Text, Required: true},
		{Name: "namespace", Doc: "What the chart sees as the namespace of its release.", Type: Text, Required: true},
		{Name: "kube_version", Doc: "What the chart sees as the version of the cluster; by default that of the library. The chart's `kubeVersion` has to allow it.", Type: Text},
		{
			Name: "api_versions", Doc: "What the chart sees as APIs of the cluster, beside those of Kubernetes.", Type: List,
			Element: &Field{Type: Text, Required: true},
		},
		{Name: "skip_hooks", Doc: "Leave hooks out, which otherwise are an error.", Type: Flag},
	}
}

// chartFiles reads what a call names of its repository: the chart, and files of values.
func chartFiles(ctx context.Context, forge activity.Forge, call activity.Call, q *activity.HelmRequest, answer map[string]any) error {
	folder, valueFiles := cleanPath(text(call.Args, "path")), list(call.Args, "value_files")
	paths := slices.Clone(valueFiles)
	_, inRepository := call.Args["path"].(string)
	if inRepository {
		paths = append(paths, folder)
	}
	if len(paths) == 0 {
		return nil
	}
	files, sha, err := readTree(ctx, forge, call, paths...)
	if err != nil {
		return err
	}
	answer["sha"] = sha
	for _, one := range valueFiles {
		content, ok := files[cleanPath(one)]
		if !ok || !utf8.Valid(content) {
			return fault.InvalidFields(fault.Field{Name: "value_files", Problem: "found " + one + ", expected a text file"})
		}
		q.Values = append(q.Values, string(content))
	}
	if inRepository {
		q.Files = map[string][]byte{}
		for name, content := range files {
			switch {
			case folder == "":
				q.Files[name] = content
			case strings.HasPrefix(name, folder+"/"):
				q.Files[strings.TrimPrefix(name, folder+"/")] = content
			}
		}
	}
	return nil
}

// checkChart finds what does not fit together.
func checkChart(args map[string]any) (wrong []fault.Field) {
	report := func(name, problem string) { wrong = append(wrong, fault.Field{Name: name, Problem: problem}) }
	chart := text(args, "chart")
	_, inRepository := args["path"].(string)
	switch {
	case (chart != "") == inRepository:
		report("chart", "expected either chart or path")
	case chart != "" && !strings.HasPrefix(chart, "oci://"):
		report("chart", "found "+chart+", expected oci:// and a repository")
	case chart != "" && text(args, "version") == "":
		report("version", "missing, expected the version of the chart")
	case chart == "" && (text(args, "version") != "" || text(args, "chart_credential") != ""):
		report("version", "found with path, expected it with chart")
	}
	if (inRepository || len(list(args, "value_files")) > 0) && (text(args, "repo_url") == "" || text(args, "ref") == "") {
		report("repo_url", "missing, expected the repository of path and value_files, and ref")
	}
	return wrong
}

// referenceOf is a chart's repository with its version. Tags have no plus sign: Helm writes an underscore.
func referenceOf(chart, version string) string {
	repository := strings.TrimSuffix(strings.TrimPrefix(chart, "oci://"), "/")
	if strings.HasPrefix(version, "sha256:") {
		return repository + "@" + version
	}
	return repository + ":" + strings.ReplaceAll(version, "+", "_")
}

// readTree reads files for a rendering.
func readTree(ctx context.Context, forge activity.Forge, call activity.Call, paths ...string) (map[string][]byte, string, error) {
	return forge.ReadTree(withLogin(ctx, call), activity.TreeRequest{
		Organization: call.Organization, RepoURL: text(call.Args, "repo_url"), Ref: text(call.Args, "ref"), Paths: paths,
		MaxFiles: mostFiles, MaxBytes: mostBytes,
	})
}

// cleanPath is a path in a repository in its shortest form; "" is the root.
func cleanPath(p string) string { return strings.Trim(path.Clean("/"+p), "/") }
