package forge

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Overlays of Kustomize and charts of Helm that environments are deployed from are rendered before and after a pull request, by the run
// that reads it: at the commits that the forge names, by the Function that renders at a deploy, within its limits. Which they are is in the
// configuration of the environments; what is not there, as how Argo CD or Flux are set up in a cluster, is not guessed.

// Pipelines reads pipelines.
type Pipelines interface {
	Read(definition json.RawMessage) (core.Flow, error)
}

// Pipeline is the newest of an application, which was not read for its places yet.
type Pipeline struct {
	ApplicationID int64
	Version       int
	Definition    json.RawMessage
}

// Place is an environment that is deployed from an overlay or a chart of a repository.
type Place struct {
	ApplicationID int64 `json:"-"`
	// Application is its name, where it is read.
	Application string `json:"-"`
	Environment string `json:"environment"`
	// Repository is its name, without a port if it is reached over SSH: an address then says nothing of the port of the pages.
	Repository string          `json:"repository"`
	SSH        bool            `json:"ssh"`
	Target     json.RawMessage `json:"target"`
}

const (
	// mostUnread is how many pipelines are read at once for their places, with so many bytes together, or one.
	mostUnread     = 50
	mostUnreadSize = 1 << 20
	// mostPlaces is how many places of a repository are looked at, mostTargetSize how many bytes one has at most, and mostRendered how many
	// are rendered for a pull request.
	mostPlaces     = 5000
	mostTargetSize = 8 << 10
	mostRendered   = 10
)

// Why an environment is not rendered, by its configuration: who sees the pull request sees what templates make of it, in whatever form.
const (
	hasValues     = "its configuration has values"
	hasCredential = "its chart needs a credential"
	hasSettings   = "its configuration has settings that templates see"
	isTooLong     = "its configuration is too long"
	hasNUL        = "its configuration has a NUL character, which cannot be stored"
)

// target is an overlay or a chart that an environment is deployed from.
type target struct {
	ApplicationID int64  `json:"application_id,omitempty"`
	Environment   string `json:"environment,omitempty"`
	Branch        string `json:"branch"`
	// Near are the folders and files that it is made of, and Under those with all that it may refer to; "" is the whole repository.
	Near  []string `json:"near"`
	Under []string `json:"under"`
	// Kustomize and Helm are arguments of the Function; one of the two is set, unless Not says why it is not rendered.
	Kustomize map[string]any `json:"kustomize,omitempty"`
	Helm      map[string]any `json:"helm,omitempty"`
	Not       string         `json:"not,omitempty"`
	// application is its name.
	application string
}

// deployed is what configurations of environments say of overlays and charts: those of kubernetes@1, argo-rollouts@1, git@1 and flux@1.
type deployed struct {
	RepositoryURL        string `json:"repository_url"`
	Branch               string `json:"branch"`
	Namespace            string `json:"namespace"`
	Path                 string `json:"path"`
	Application          string `json:"application"`
	DestinationNamespace string `json:"destination_namespace"`
	Kustomize            *struct {
		Path string `json:"path"`
		Root string `json:"root"`
	} `json:"kustomize"`
	Helm     *chart `json:"helm"`
	Services []struct {
		Service   string `json:"service"`
		Format    string `json:"format"`
		File      string `json:"file"`
		ImageName string `json:"image_name"`
	} `json:"services"`
}

// chart is how kubernetes@1 names one.
type chart struct {
	Chart       string   `json:"chart"`
	Version     string   `json:"version"`
	Credential  string   `json:"credential"`
	Path        string   `json:"path"`
	Release     string   `json:"release"`
	ValueFiles  []string `json:"value_files"`
	Values      string   `json:"values"`
	KubeVersion string   `json:"kube_version"`
	APIVersions []string `json:"api_versions"`
	SkipHooks   bool     `json:"skip_hooks"`
}

// targets are what a configuration names.
func (c deployed) targets() (all []target) {
	switch {
	case c.Kustomize != nil:
		return []target{overlay(c.Kustomize.Path, c.Kustomize.Root)}
	case c.Helm != nil:
		if t, is := c.Helm.target(c); is {
			return []target{t}
		}
		return nil
	}
	for _, s := range c.Services {
		var t target
		switch {
		case s.Format == "kustomize":
			t = overlay(c.Path, "")
		case s.Format == "helm" && c.Path != "":
			t, _ = chart{Path: c.Path, Release: c.Application}.target(deployed{Namespace: c.DestinationNamespace})
		case s.Format == "" && s.ImageName != "":
			t = overlay(folderOf(s.File), "")
		default:
			continue
		}
		if !slices.ContainsFunc(all, func(o target) bool { return o.Near[0] == t.Near[0] }) {
			all = append(all, t)
		}
	}
	return all
}

// overlay is one with its bases, which may be anywhere below the root.
func overlay(at, root string) target {
	at, root = cleaned(at), cleaned(root)
	arguments := map[string]any{"path": at}
	if root != "" {
		arguments["root"] = root
	}
	return target{Near: []string{at}, Under: []string{root}, Kustomize: arguments}
}

// target is a chart, if a repository has something of it.
func (h chart) target(c deployed) (t target, is bool) {
	if h.Path != "" {
		t.Near = []string{cleaned(h.Path)}
	}
	for _, file := range h.ValueFiles {
		t.Near = append(t.Near, cleaned(file))
	}
	release := h.Release
	if release == "" && len(c.Services) > 0 {
		release = c.Services[0].Service
	}
	t.Under = t.Near
	if t.Not = h.withheld(); t.Not != "" {
		return t, len(t.Near) > 0
	}
	t.Helm = map[string]any{"release": release, "namespace": c.Namespace}
	for name, value := range map[string]string{"path": h.Path, "chart": h.Chart, "version": h.Version} {
		if value != "" {
			t.Helm[name] = value
		}
	}
	if len(h.ValueFiles) > 0 {
		t.Helm["value_files"] = h.ValueFiles
	}
	if h.SkipHooks {
		t.Helm["skip_hooks"] = true
	}
	return t, len(t.Near) > 0
}

// withheld is why a chart is not rendered for those who see a pull request: its templates are written by who has made the pull request, and
// would show what the configuration gives to them. The names of the release and of the namespace are in the objects anyway.
func (h chart) withheld() string {
	switch {
	case h.Values != "":
		return hasValues
	case h.Credential != "":
		return hasCredential
	case h.KubeVersion != "" || len(h.APIVersions) > 0:
		return hasSettings
	}
	return ""
}

// cleaned is a path in its shortest form; "" is the root.
func cleaned(p string) string { return strings.Trim(path.Clean("/"+p), "/") }

func folderOf(file string) string {
	folder, _ := path.Split(cleaned(file))
	return folder
}

// placesOf are what a pipeline says of repositories. What cannot be read deploys nothing.
func (u *UseCases) placesOf(definition json.RawMessage) (all []Place) {
	flow, err := u.pipelines.Read(definition)
	if err != nil {
		return nil
	}
	for _, step := range flow.Deploys {
		var c deployed
		if json.Unmarshal(step.Config, &c) != nil {
			continue
		}
		name := RepositoryName(c.RepositoryURL)
		if name == "" {
			continue
		}
		_, ssh, _ := sealing.ParseSSH(c.RepositoryURL)
		if ssh {
			name = withoutPort(name)
		}
		for _, t := range c.targets() {
			if t.Branch = c.Branch; t.Branch == "" {
				t.Branch = "main"
			}
			text, err := json.Marshal(t)
			not := ""
			switch { // the paths are part of it
			case len(text) > mostTargetSize:
				not = isTooLong
			case bytes.Contains(text, []byte(`\u0000`)):
				not = hasNUL
			}
			if not != "" {
				branch := cut(strings.ReplaceAll(t.Branch, "\x00", ""), maxLine)
				text, err = json.Marshal(target{Branch: branch, Near: []string{""}, Under: []string{""}, Not: not})
			}
			if err == nil {
				all = append(all, Place{Environment: step.Environment, Repository: name, SSH: ssh, Target: text})
			}
		}
	}
	return all
}

// rendered is what differs in one environment once its overlay or chart is rendered, as a run reports it.
type rendered struct {
	ApplicationID int64    `json:"application_id"`
	Environment   string   `json:"environment"`
	Why           string   `json:"why"`
	Before        string   `json:"before"`
	Resources     []string `json:"resources"`
	Diffs         []diff   `json:"diffs"`
	// Application is its name, once it is known to be shown.
	Application string `json:"application"`
}
