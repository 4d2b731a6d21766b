// Package render is `helm template` as a function: it takes a chart and values, and returns the objects of the release, each decoded into
// its Kubernetes API type, so that an unknown field is an error.
//
// It contacts no cluster and installs nothing.
package render

import (
	"bufio"
	"bytes"
	"context"
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
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Release is a release to render.
type Release struct {
	// Chart is the folder of a chart.
	Chart string
	// Name and Namespace are the release's.
	Name, Namespace string
	// Values override the chart's own.
	Values map[string]any
	// APIs are kinds that the cluster has beside Kubernetes's own: monitoring.coreos.com/v1/ServiceMonitor.
	APIs []string
}

// Object is one object of a release.
type Object struct {
	// Source is the template that it was rendered from, relative to the chart.
	Source string
	// Kind, Name and Namespace identify it; a cluster-scoped object has no Namespace.
	Kind, Name, Namespace string
	// Typed is the object in its Go type; unstructured for third-party kinds.
	Typed runtime.Object
	// Text is its rendered YAML.
	Text string
}

// Objects returns the objects of the release, hooks included, by template and in the order there, and the notes that are shown after an
// install.
func Objects(ctx context.Context, r Release) ([]Object, string, error) {
	chart, err := loader.Load(r.Chart)
	if err != nil {
		return nil, "", fmt.Errorf("load %s: %w", r.Chart, err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, r.APIs...)
	values, err := util.ToRenderValues(chart, r.Values,
		common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, "", fmt.Errorf("values of %s: %w", r.Chart, err)
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(ctx, chart, values)
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
			more, err := Decode(source, files[file])
			if err != nil {
				return nil, "", err
			}
			objects = append(objects, more...)
		}
	}
	return objects, notes, nil
}

// Decode strictly decodes the documents of one rendered template.
func Decode(source, text string) ([]Object, error) {
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

// typed returns the object in its Go type. An unknown or duplicate field is an error. So is an unknown kind of Kubernetes itself;
// third-party kinds have a domain as group, and stay unstructured.
func typed(document []byte, u *unstructured.Unstructured) (runtime.Object, error) {
	if group := u.GroupVersionKind().Group; strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") ||
		group == "gateway.networking.k8s.io" {
		return u, nil
	}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme,
	} {
		if err := add(known); err != nil {
			return nil, fmt.Errorf("kinds of Kubernetes: %w", err)
		}
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := strict.Decode(document, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode strictly: %w", err)
	}
	return object, nil
}
