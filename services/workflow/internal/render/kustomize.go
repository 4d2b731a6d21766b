package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// kustomize builds an overlay, with the options of `kustomize build`: no plugins, no Helm charts, and files only from the folder of each
// kustomization and from bases.
func kustomize(q activity.KustomizeRequest) (activity.Rendered, error) {
	disk := filesys.MakeFsInMemory()
	for name, content := range q.Files {
		if strings.HasPrefix(path.Clean(name), "..") || path.IsAbs(name) {
			return activity.Rendered{}, fault.New(fault.Invalid, "found the path %q outside of the repository", name)
		}
		if slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(name)) {
			if err := local(name, content); err != nil {
				return activity.Rendered{}, err
			}
		}
		if err := disk.WriteFile("/"+name, content); err != nil {
			return activity.Rendered{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	folder := "/" + strings.Trim(path.Clean("/"+q.Path), "/")
	if !disk.IsDir(folder) {
		return activity.Rendered{}, fault.New(fault.Invalid, "the folder %q does not exist", q.Path)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, folder)
	if err != nil {
		return activity.Rendered{}, fmt.Errorf("kustomize: %w", err)
	}
	text, err := built.AsYaml()
	if err != nil {
		return activity.Rendered{}, fmt.Errorf("kustomize: %w", err)
	}
	return activity.Rendered{Text: string(text)}, nil
}

// local refuses a kustomization that refers to what is elsewhere, or that has charts or programs run. The library would say so too, by what
// it failed to do.
func local(name string, content []byte) error {
	type sources struct {
		Files []string `json:"files"`
		Envs  []string `json:"envs"`
		Env   string   `json:"env"`
	}
	var k struct {
		Resources    []string  `json:"resources"`
		Bases        []string  `json:"bases"`
		Components   []string  `json:"components"`
		Generators   []string  `json:"generators"`
		Transformers []string  `json:"transformers"`
		Validators   []string  `json:"validators"`
		CRDs         []string  `json:"crds"`
		ConfigMaps   []sources `json:"configMapGenerator"`
		Secrets      []sources `json:"secretGenerator"`
		Charts       []any     `json:"helmCharts"`
		Inflated     []any     `json:"helmChartInflationGenerator"`
	}
	if err := yaml.Unmarshal(content, &k); err != nil {
		return nil //nolint:nilerr // the library has better words for it, if it is reached at all
	}
	for _, ref := range slices.Concat(k.Resources, k.Bases, k.Components, k.Generators, k.Transformers, k.Validators) {
		if remote(ref) && !strings.Contains(ref, "\n") { // with several lines it is no reference, but what one would refer to
			return fault.New(fault.Invalid, "%s: found the remote base %.200q; expected it to be in the repository: commit what it has", name, ref)
		}
	}
	files := k.CRDs
	for _, one := range slices.Concat(k.ConfigMaps, k.Secrets) {
		files = slices.Concat(files, one.Files, one.Envs, []string{one.Env})
	}
	for _, file := range files {
		if _, of, named := strings.Cut(file, "="); remote(file) || named && remote(of) {
			return fault.New(fault.Invalid, "%s: found the remote file %.200q; expected it to be in the repository: commit it", name, file)
		}
	}
	if len(k.Charts)+len(k.Inflated) > 0 {
		return fault.New(fault.Invalid, "%s: found helmCharts; expected the environment's configuration to name the chart in `helm`", name)
	}
	return nil
}

// remote reports whether a reference in a kustomization is not a path.
func remote(ref string) bool {
	first, _, _ := strings.Cut(ref, "/")
	return strings.HasPrefix(ref, "http:") || strings.HasPrefix(ref, "https:") || strings.HasPrefix(ref, "ssh:") || strings.Contains(ref, "://") || strings.Contains(ref, "::") || isLogin(first) || strings.Contains(ref, "?ref=") ||
		strings.Contains(first, ".") && strings.Trim(first, ".") != "" && strings.Contains(ref, "/") && isHost(first)
}

// isLogin reports whether the first part of a path is a user and a host, as in git@github.com:shop/base.
func isLogin(first string) bool {
	_, host, at := strings.Cut(first, "@")
	return at && strings.Contains(host, ":")
}

// isHost reports whether the first part of a path is one of the forges that Kustomize knows without a scheme.
func isHost(first string) bool {
	return slices.Contains([]string{"github.com", "gitlab.com", "bitbucket.org", "gitea.com", "codeberg.org"}, strings.ToLower(first))
}
