// Package kinds writes the JSON Schemas against which kubeconform validates rendered charts, so that `make charts` needs no network: one
// file for each kind in the charts, with the form and name that kubeconform expects. Kubernetes' own kinds come from its OpenAPI document,
// others from the CustomResourceDefinitions of their projects, each from its Go module at a pinned version.
//
// Descriptions are omitted, and unknown fields are refused. The package validates nothing itself.
package kinds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// kubernetes is the module with the OpenAPI document. Its version is that of the end-to-end tests' cluster (tools/cluster).
const kubernetes = "k8s.io/kubernetes@v1.34.2"

// quantity may be a text or a number, which the document does not say.
const quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"

// definitions returns Kubernetes' own kinds in the charts, by their names in the OpenAPI document.
func definitions() []string {
	return []string{
		"io.k8s.api.apps.v1.Deployment", "io.k8s.api.apps.v1.StatefulSet", "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
		"io.k8s.api.batch.v1.Job", "io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Service",
		"io.k8s.api.core.v1.ServiceAccount", "io.k8s.api.networking.v1.Ingress", "io.k8s.api.networking.v1.NetworkPolicy",
		"io.k8s.api.policy.v1.PodDisruptionBudget", "io.k8s.api.rbac.v1.ClusterRole", "io.k8s.api.rbac.v1.ClusterRoleBinding",
		"io.k8s.api.rbac.v1.Role", "io.k8s.api.rbac.v1.RoleBinding",
	}
}

// resources returns the third-party CustomResourceDefinitions: a module, and files in it.
func resources() map[string][]string {
	return map[string][]string{
		"github.com/kedacore/keda/v2@v2.18.0": {"config/crd/bases/keda.sh_scaledobjects.yaml"},
		"sigs.k8s.io/gateway-api@v1.4.0":      {"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
		"github.com/prometheus-operator/prometheus-operator@v0.82.0": {
			"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
		},
	}
}

// Write replaces the schemas in a folder. It downloads the modules that are not in the module cache.
func Write(ctx context.Context, dir string) error {
	files := map[string]map[string]any{}
	if err := own(ctx, files); err != nil {
		return err
	}
	for module, paths := range resources() {
		if err := custom(ctx, module, paths, files); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove former schemas: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a source folder: as readable as the others
		return fmt.Errorf("make folder of schemas: %w", err)
	}
	for name, schema := range files {
		text, err := json.Marshal(schema)
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		//nolint:gosec // a source file: as readable as the others
		if err := os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("write schema: %w", err)
		}
	}
	return nil
}

// file returns the name under which kubeconform looks up a kind.
func file(group, version, kind string) string {
	group, _, _ = strings.Cut(group, ".")
	return strings.ToLower(strings.Join(slices.DeleteFunc([]string{kind, group, version}, func(s string) bool { return s == "" }), "-")) +
		".json"
}

// own adds Kubernetes' own kinds.
func own(ctx context.Context, files map[string]map[string]any) error {
	text, err := read(ctx, kubernetes, "api/openapi-spec/swagger.json")
	if err != nil {
		return err
	}
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("read OpenAPI document of %s: %w", kubernetes, err)
	}
	for _, name := range definitions() {
		definition, found := document.Definitions[name]
		if !found {
			return fmt.Errorf("%s: found no definition %s", kubernetes, name)
		}
		schema, reached := strictObject(definition), map[string]any{}
		reach(schema, document.Definitions, reached)
		schema["definitions"] = reached
		parts := strings.Split(name, ".")
		group := parts[3]
		if group == "core" {
			group = ""
		}
		files[file(group, parts[4], parts[5])] = schema
	}
	return nil
}

// reach adds to reached every definition that a schema refers to, directly or indirectly.
func reach(schema any, all map[string]map[string]any, reached map[string]any) {
	switch s := schema.(type) {
	case map[string]any:
		if ref, ok := s["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/definitions/")
			if _, done := reached[name]; !done {
				definition := strictObject(all[name])
				if name == quantity {
					definition = map[string]any{"type": []any{"string", "number"}}
				}
				reached[name] = definition
				reach(definition, all, reached)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(s)) {
			reach(s[key], all, reached)
		}
	case []any:
		for _, item := range s {
			reach(item, all, reached)
		}
	}
}

// custom adds the kinds of CustomResourceDefinitions.
func custom(ctx context.Context, module string, paths []string, files map[string]map[string]any) error {
	for _, path := range paths {
		text, err := read(ctx, module, path)
		if err != nil {
			return err
		}
		var crd struct {
			Spec struct {
				Group string `json:"group"`
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
				Versions []struct {
					Name   string `json:"name"`
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		// Files begin with a document marker, some with a comment as well.
		if err := yaml.Unmarshal(bytes.TrimPrefix(text, []byte("---\n")), &crd); err != nil {
			return fmt.Errorf("read %s of %s: %w", path, module, err)
		}
		for _, v := range crd.Spec.Versions {
			files[file(crd.Spec.Group, v.Name, crd.Spec.Names.Kind)] = strictObject(v.Schema.OpenAPIV3Schema)
		}
	}
	return nil
}

// strict converts an OpenAPI schema to a JSON Schema: without descriptions, refusing unknown fields, and with the meaning of Kubernetes's
// formats and extensions.
func strict(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		return strictObject(s)
	case []any:
		out := make([]any, len(s))
		for i, item := range s {
			out[i] = strict(item)
		}
		return out
	default:
		return s
	}
}

func strictObject(schema map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range schema {
		switch key {
		case "description", "x-kubernetes-validations", "default":
			// A property may be called description: then it is a schema, not a text.
			if _, isText := value.(map[string]any); !isText {
				continue
			}
		}
		out[key] = strict(value)
	}
	number := out["format"] == "int-or-string" || out["x-kubernetes-int-or-string"] == true
	if number {
		delete(out, "format")
		delete(out, "type")
		delete(out, "anyOf")
		out["type"] = []any{"string", "integer"}
	}
	_, hasProperties := out["properties"].(map[string]any)
	_, isSet := out["additionalProperties"]
	if hasProperties && !isSet && out["x-kubernetes-preserve-unknown-fields"] != true && out["type"] == "object" {
		out["additionalProperties"] = false
	}
	return out
}

// read returns a file of a module at a version.
func read(ctx context.Context, module, path string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", module) //nolint:gosec // one of the modules that this package names
	command.Dir = os.TempDir()                                                    // outside any module: uses the version that is named
	answer, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("download %s: %w: %s", module, err, answer)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(answer, &downloaded); err != nil {
		return nil, fmt.Errorf("download %s: %w", module, err)
	}
	text, err := os.ReadFile(filepath.Join(downloaded.Dir, path))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", module, err)
	}
	return text, nil
}
