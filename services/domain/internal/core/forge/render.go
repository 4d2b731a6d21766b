package forge

import (
	"context"
	"encoding/json"
	"fmt"
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

// Pipeline is the newest of an application.
type Pipeline struct {
	ApplicationID int64
	Application   string
	Definition    json.RawMessage
}

const (
	// mostPipelines is how many pipelines are read that name a repository, and mostTargets how many of their environments are looked at, with
	// so many bytes of configuration together.
	mostPipelines  = 200
	mostTargets    = 200
	mostTargetSize = 256 << 10
)

// target is an overlay or a chart that an environment is deployed from.
type target struct {
	ApplicationID int64  `json:"application_id"`
	Environment   string `json:"environment"`
	Branch        string `json:"branch"`
	// Near are the folders and files that it is made of, and Under those with all that it may refer to; "" is the whole repository.
	Near  []string `json:"near"`
	Under []string `json:"under"`
	// Kustomize and Helm are arguments of the Function; one of the two is set.
	Kustomize map[string]any `json:"kustomize,omitempty"`
	Helm      map[string]any `json:"helm,omitempty"`
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

// targets are the overlays and charts of a repository that applications are deployed from whose plans are shown; left is how many are not
// looked at.
func (u *UseCases) targets(ctx context.Context, tx Tx, organization int64, repository string) (all []target, left int, err error) {
	pipelines, err := u.pipelinesOf(ctx, tx, organization, repository)
	if err != nil {
		return nil, 0, err
	}
	size := 0
	for _, p := range pipelines {
		for _, t := range u.targetsOf(p, repository) {
			text, err := json.Marshal(t)
			if err != nil || len(all) == mostTargets || size+len(text) > mostTargetSize {
				left++
				continue
			}
			size += len(text)
			all = append(all, t)
		}
	}
	return all, left, nil
}

// pipelinesOf are the pipelines that may deploy from a repository, of applications that are not left out of plans.
func (u *UseCases) pipelinesOf(ctx context.Context, tx Tx, organization int64, repository string) ([]Pipeline, error) {
	_, at, _ := strings.Cut(repository, "/")
	pipelines, err := tx.PipelinesNaming(ctx, "/"+at, mostPipelines)
	if err != nil || len(pipelines) == 0 {
		return nil, err
	}
	mirrors, err := tx.ForgeMirrors(ctx, organization)
	return slices.DeleteFunc(pipelines, func(p Pipeline) bool { return leftOut(mirrors, p.ApplicationID) }), err
}

// leftOut reports whether plans say nothing of an application.
func leftOut(mirrors []Mirror, application int64) bool {
	return slices.ContainsFunc(mirrors, func(m Mirror) bool { return m.ApplicationID == application && !m.Plans })
}

func (u *UseCases) targetsOf(p Pipeline, repository string) (all []target) {
	flow, err := u.pipelines.Read(p.Definition)
	if err != nil {
		return nil // what cannot be read deploys nothing
	}
	for _, step := range flow.Deploys {
		var c deployed
		if json.Unmarshal(step.Config, &c) != nil || !sameRepository(c.RepositoryURL, repository) {
			continue
		}
		for _, t := range c.targets() {
			t.ApplicationID, t.Environment, t.Branch = p.ApplicationID, step.Environment, c.Branch
			if t.Branch == "" {
				t.Branch = "main"
			}
			all = append(all, t)
		}
	}
	return all
}

// sameRepository reports whether an address is that of a repository with a name. Over SSH an address says nothing of the port of the pages.
func sameRepository(address, name string) bool {
	own := RepositoryName(address)
	if _, ssh, err := sealing.ParseSSH(address); ssh && err == nil {
		host, at, _ := strings.Cut(name, "/")
		host, _, _ = strings.Cut(host, ":")
		name = host + "/" + at
	}
	return own != "" && own == name
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
	t.Helm = map[string]any{"release": release, "namespace": c.Namespace}
	for name, value := range map[string]string{
		"path": h.Path, "chart": h.Chart, "version": h.Version, "chart_credential": h.Credential, "values": h.Values,
		"kube_version": h.KubeVersion,
	} {
		if value != "" {
			t.Helm[name] = value
		}
	}
	for name, value := range map[string][]string{"value_files": h.ValueFiles, "api_versions": h.APIVersions} {
		if len(value) > 0 {
			t.Helm[name] = value
		}
	}
	if h.SkipHooks {
		t.Helm["skip_hooks"] = true
	}
	return t, len(t.Near) > 0
}

// cleaned is a path in its shortest form; "" is the root.
func cleaned(p string) string { return strings.Trim(path.Clean("/"+p), "/") }

func folderOf(file string) string {
	folder, _ := path.Split(cleaned(file))
	return folder
}

// rendered is what differs in one environment once its overlay or chart is rendered, as a run reports it.
type rendered struct {
	ApplicationID int64    `json:"application_id"`
	Environment   string   `json:"environment"`
	Why           string   `json:"why"`
	Before        string   `json:"before"`
	Resources     []string `json:"resources"`
	Diffs         []diff   `json:"diffs"`
	// application is its name.
	application string
}

// matters reports whether there is something to say: what cannot be rendered before, and neither afterwards for the same reason, is not
// about the change.
func (r rendered) matters() bool {
	return len(r.Resources) > 0 || r.Why != r.Before
}

// shownRendered are those of applications that may be shown now, with their names.
func (u *UseCases) shownRendered(ctx context.Context, tx Tx, organization int64, repository string, all []rendered) ([]rendered, error) {
	if len(all) == 0 {
		return nil, nil
	}
	pipelines, err := u.pipelinesOf(ctx, tx, organization, repository)
	var shown []rendered
	for _, r := range all {
		at := slices.IndexFunc(pipelines, func(p Pipeline) bool { return p.ApplicationID == r.ApplicationID })
		if at < 0 || !r.matters() {
			continue
		}
		r.application = pipelines[at].Application
		shown = append(shown, r)
	}
	return shown, err
}

// rendering is how many overlays and charts a run has rendered, could not render because of the change or for now, and has left out.
type rendering struct {
	done, failed, left int
	// why is why the first one could not be rendered.
	why string
}

// renderings counts those of what a run has read.
func renderings(read json.RawMessage) (n rendering) {
	var r reading
	if json.Unmarshal(read, &r) != nil { // it was read before
		return n
	}
	n.left = r.Unrendered
	for _, one := range r.Rendered {
		switch {
		case one.Why == "":
			n.done++
		case one.matters():
			if n.failed++; n.why == "" {
				n.why = line(one.Why)
			}
		}
	}
	return n
}

// words are what became of renderings, behind a sentence; empty if there was nothing to render.
func (n rendering) words() string {
	text := ""
	if n.done > 0 {
		text += fmt.Sprintf("; environments rendered: %d", n.done)
	}
	if n.failed > 0 {
		text += fmt.Sprintf("; not rendered: %d, the first because %s", n.failed, n.why)
	}
	if n.left > 0 {
		text += fmt.Sprintf("; left out: %d", n.left)
	}
	return cut(text, maxError/2)
}

// renderings counts what became of them.
func (c *counts) renderings(read json.RawMessage) {
	n := renderings(read)
	c.rendered.Add(int64(n.done))
	c.unrendered.Add(int64(n.failed))
	c.unlooked.Add(int64(n.left))
}
