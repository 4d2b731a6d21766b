package render

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log" //nolint:depguard // what the library writes to it is dropped
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// maxChart bounds what a chart may unpack to, in bytes.
const maxChart = 20 << 20

// helm renders a chart as `helm template` does: without a cluster, so that lookup finds nothing.
func helm(q activity.HelmRequest) (activity.Rendered, error) {
	// The library prints its warnings, to where the answer of the child goes.
	log.SetOutput(discard{})
	slog.SetDefault(slog.New(slog.DiscardHandler))
	archive.MaxDecompressedChartSize = maxChart
	c, err := load(q)
	if err != nil {
		return activity.Rendered{}, err
	}
	values, err := valuesOf(q.Values)
	if err != nil {
		return activity.Rendered{}, err
	}
	if err := dependencies(c); err != nil {
		return activity.Rendered{}, err
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return activity.Rendered{}, fmt.Errorf("dependencies of the chart: %w", err)
	}
	capabilities, err := capabilitiesOf(q)
	if err != nil {
		return activity.Rendered{}, err
	}
	if kube := capabilities.KubeVersion.String(); c.Metadata.KubeVersion != "" && !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, kube) {
		return activity.Rendered{}, fault.New(fault.Invalid, "the chart is for Kubernetes %s, found %s (kube_version says which)", c.Metadata.KubeVersion, kube)
	}
	options := common.ReleaseOptions{Name: q.Release, Namespace: q.Namespace, Revision: 1, IsInstall: true}
	shown, err := util.ToRenderValuesWithSchemaValidation(c, values, options, capabilities, true)
	if err != nil {
		return activity.Rendered{}, fmt.Errorf("values: %w", err)
	}
	coalesced, err := shown.Table("Values")
	if err != nil {
		return activity.Rendered{}, fmt.Errorf("values: %w", err)
	}
	if err := fit(c, coalesced); err != nil {
		return activity.Rendered{}, err
	}
	files, err := new(engine.Engine).RenderWithContext(context.Background(), c, shown)
	if err != nil {
		return activity.Rendered{}, fmt.Errorf("helm: %w", err)
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return strings.EqualFold(path.Base(name), "NOTES.txt") })
	if err := orderly(files); err != nil {
		return activity.Rendered{}, err
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return activity.Rendered{}, fmt.Errorf("helm: %w", err)
	}
	if err := hooked(hooks, q.SkipHooks); err != nil {
		return activity.Rendered{}, err
	}
	var text strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", m.Name, strings.TrimSpace(m.Content))
	}
	return activity.Rendered{
		Text:  text.String(),
		Chart: &activity.ChartInfo{Name: c.Metadata.Name, Version: c.Metadata.Version, AppVersion: c.Metadata.AppVersion},
	}, nil
}

type discard struct{}

// Write drops it.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// load reads a chart from its archive or its files.
func load(q activity.HelmRequest) (*chart.Chart, error) {
	var c *chart.Chart
	var err error
	if q.Archive != nil {
		c, err = loader.LoadArchive(bytes.NewReader(q.Archive))
	} else {
		var files []*archive.BufferedFile
		ignored, wrong := ignoredIn(q.Files)
		if wrong != nil {
			return nil, wrong
		}
		for _, name := range slices.Sorted(maps.Keys(q.Files)) {
			if ignored(name) {
				continue
			}
			files = append(files, &archive.BufferedFile{Name: name, Data: bytes.TrimPrefix(q.Files[name], []byte("\xef\xbb\xbf"))})
		}
		c, err = loader.LoadFiles(files)
	}
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	if c.Metadata.Type != "" && c.Metadata.Type != "application" {
		return nil, fault.New(fault.Invalid, "the chart %s is of type %s; expected an application", c.Metadata.Name, c.Metadata.Type)
	}
	return c, nil
}

// dependencies refuses a chart that lacks some: they are not fetched.
func dependencies(c *chart.Chart) error {
	var missing []string
	for _, wanted := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(has *chart.Chart) bool { return has.Name() == wanted.Name }) {
			missing = append(missing, wanted.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "the chart %s lacks its dependencies %s in charts/; commit or publish it with them (`helm dependency build`)",
		c.Name(), strings.Join(missing, ", "))
}

// valuesOf merges texts of values; a later one wins.
func valuesOf(texts []string) (map[string]any, error) {
	all := map[string]any{}
	for i, text := range texts {
		one, err := loader.LoadValues(strings.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("values %d: %w", i+1, err)
		}
		all = loader.MergeMaps(all, one)
	}
	return all, nil
}

// capabilitiesOf are what templates see of a cluster.
func capabilitiesOf(q activity.HelmRequest) (*common.Capabilities, error) {
	c := common.DefaultCapabilities.Copy()
	if q.KubeVersion != "" {
		version, err := common.ParseKubeVersion(q.KubeVersion)
		if err != nil {
			return nil, fault.New(fault.Invalid, "kube_version: found %q, expected a version such as 1.34.0", q.KubeVersion)
		}
		c.KubeVersion = *version
	}
	c.APIVersions = append(slices.Clone(c.APIVersions), q.APIVersions...)
	return c, nil
}

// fit checks values by the schemas of a chart and of those in it. The library's own check would fetch what a schema refers to.
func fit(c *chart.Chart, values map[string]any) error {
	if len(c.Schema) > 0 {
		if err := fits(c.Schema, values); err != nil {
			return fmt.Errorf("the values do not fit the schema of the chart %s: %w", c.Name(), err)
		}
	}
	for _, sub := range c.Dependencies() {
		of, ok := values[sub.Name()].(map[string]any)
		if !ok {
			continue
		}
		if err := fit(sub, of); err != nil {
			return err
		}
	}
	return nil
}

// alone refuses documents that a schema refers to.
type alone struct{}

// Load refuses.
func (alone) Load(url string) (any, error) {
	return nil, fault.New(fault.Invalid, "found a reference to %.200q; expected a schema that refers to nothing outside of it", url)
}

func fits(text []byte, values map[string]any) error {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	const at = "mem:///values.schema.json" // without a scheme it would be a file of the working directory, which a child cannot ask for
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(alone{})
	if err := compiler.AddResource(at, document); err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	schema, err := compiler.Compile(at)
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	plain, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("encode the values: %w", err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		return fmt.Errorf("decode the values: %w", err)
	}
	return schema.Validate(instance)
}

// hooked refuses a chart with hooks other than tests: nothing would run them.
func hooked(hooks []*release.Hook, skip bool) error {
	var problems []error
	for _, h := range hooks {
		if skip || !slices.ContainsFunc(h.Events, func(e release.HookEvent) bool { return e != release.HookTest }) {
			continue
		}
		problems = append(problems, fmt.Errorf("%s: %s %s is a hook (%v)", h.Path, h.Kind, h.Name, h.Events))
	}
	if len(problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "the chart has hooks, which are not run: make them jobs of the pipeline, and set skip_hooks to leave them out: %w",
		errors.Join(problems...))
}
