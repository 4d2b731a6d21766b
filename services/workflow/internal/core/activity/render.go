package activity

import "context"

// Renderer makes manifests of what tools for Kubernetes read. It fetches nothing: all content is in the request. The error is Invalid for
// content that cannot be rendered, with the tool's reason, and Refused for content that takes more memory or time than it may. It is
// Unavailable while the machine is too busy.
type Renderer interface {
	Kustomize(ctx context.Context, r KustomizeRequest) (Rendered, error)
	Helm(ctx context.Context, r HelmRequest) (Rendered, error)
}

// KustomizeRequest names an overlay.
type KustomizeRequest struct {
	Organization int64
	// Files are by path, and Path is the folder of the kustomization among them.
	Files map[string][]byte
	Path  string
	// Preview reports whether nobody waits for it who deploys: others go first.
	Preview bool `json:"-"`
}

// HelmRequest has a chart: a packaged one, or its files by their paths below the folder of the chart.
type HelmRequest struct {
	Organization int64
	Archive      []byte
	Files        map[string][]byte
	// Values are YAML texts; a later one wins over an earlier one, and all over the chart's own.
	Values []string
	// Release and Namespace are what templates see as those.
	Release, Namespace string
	// KubeVersion and APIVersions are what templates see of the cluster, beside what Kubernetes itself serves; "" for the library's.
	KubeVersion string
	APIVersions []string
	// SkipHooks leaves hooks out, which otherwise are an error: nothing would run them. Tests are always left out.
	SkipHooks bool
	// Preview is that of a KustomizeRequest.
	Preview bool `json:"-"`
}

// Rendered is a text of YAML documents. Chart is set for one.
type Rendered struct {
	Text  string
	Chart *ChartInfo `json:",omitempty"`
}

// ChartInfo says which chart it was.
type ChartInfo struct{ Name, Version, AppVersion string }

// Charts reads packaged charts from OCI registries.
type Charts interface {
	// Pull returns the archive of a chart and the digest of its manifest.
	Pull(ctx context.Context, r ChartRequest) (Chart, error)
}

// ChartRequest names a packaged chart: a repository with a tag or a digest, as host/path:tag.
type ChartRequest struct {
	Organization int64
	Reference    string
	// Credential is the name of one; "" for that with the longest matching URL.
	Credential string
	Secrets    map[string]string
}

// Chart is a packaged chart.
type Chart struct {
	Archive []byte
	Digest  string
}

// TreeRequest names folders and files of a commit, which a branch, a tag or its id names.
type TreeRequest struct {
	Organization int64
	RepoURL, Ref string
	// Paths are folders, read with all that is below them, or files; "" is the whole repository.
	Paths []string
	// MaxFiles and MaxBytes bound what is read; more is Refused.
	MaxFiles, MaxBytes int
	// Alone has a commit fetched by itself only: a server that does not serve it by its id is not asked for its whole history.
	Alone bool
}

// NoPathError is the cause of NotFound for a path that is not in a commit that was read.
type NoPathError struct{}

// Error says it without the path.
func (NoPathError) Error() string { return "the commit has no such path" }
