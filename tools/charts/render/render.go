// Package render is `helm template` as a function: a chart and values in, the objects of the release out, each decoded into
// the type that the Kubernetes API has for it, so that a field that no API knows is an error.
//
// It talks to no cluster and installs nothing.
package render

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// Release says what to render.
type Release struct {
	// Chart is the folder of a chart.
	Chart string
	// Name and Namespace are the release's.
	Name, Namespace string
	// Values go over the chart's own.
	Values map[string]any
	// APIs are kinds that the cluster knows beside Kubernetes's own: monitoring.coreos.com/v1/ServiceMonitor.
	APIs []string
}

// Object is one object of a release.
type Object struct {
	// Source is the template it came from, relative to the chart.
	Source string
	// Kind and Name are its own; Namespace is empty for what has none.
	Kind, Name, Namespace string
	// Typed is the object in its Go type; unstructured for a kind that is not Kubernetes's own.
	Typed runtime.Object
	// Text is its YAML as rendered.
	Text string
}

// Objects are those of the release, hooks included, by template and in the order there, and the notes that are shown after an
// install.
func Objects(r Release) ([]Object, string, error) {
	chart, err := loader.Load(r.Chart)
	if err != nil {
		return nil, "", fmt.Errorf("load %s: %w", r.Chart, err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, r.APIs...)
	values, err := util.ToRenderValues(chart, r.Values, common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, "", fmt.Errorf("values of %s: %w", r.Chart, err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, values)
	if err != nil {
		return nil, "", fmt.Errorf("render %s: %w", r.Chart, err)
	}
	var objects []Object
	var notes string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		source := strings.TrimPrefix(file, chart.Name()+"/")
		switch path.Ext(file) {
		case ".txt":
			notes = files[file]
		case ".yaml":
			more, err := decode(source, files[file])
			if err != nil {
				return nil, "", err
			}
			objects = append(objects, more...)
		}
	}
	return objects, notes, nil
}

// decode reads the documents of one rendered template.
func decode(source, text string) ([]Object, error) {
	var objects []Object
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		var u unstructured.Unstructured
		if err := yaml.UnmarshalStrict(document, &u.Object); err != nil {
			return nil, fmt.Errorf("%s: not one YAML object: %w\n%s", source, err, document)
		}
		if len(u.Object) == 0 { // only comments
			continue
		}
		typed, err := typed(document, &u)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", source, u.GetKind(), u.GetName(), err)
		}
		objects = append(objects, Object{
			Source: source, Kind: u.GetKind(), Name: u.GetName(), Namespace: u.GetNamespace(), Typed: typed,
			Text: string(bytes.TrimSpace(document)) + "\n",
		})
	}
}

// typed is the object in its Go type. A field that the type lacks, and a field that is there twice, are errors.
func typed(document []byte, u *unstructured.Unstructured) (runtime.Object, error) {
	if !scheme.Scheme.Recognizes(u.GroupVersionKind()) {
		return u, nil
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := strict.Decode(document, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode strictly: %w", err)
	}
	return object, nil
}
