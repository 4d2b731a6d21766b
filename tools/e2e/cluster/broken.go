package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// SetBroken sets the images, by full reference, whose pods never become ready. Pods that are ready already stay so.
func (c *Cluster) SetBroken(ctx context.Context, images []string) error {
	text, err := os.ReadFile(filepath.Join(c.config.Programs, "manifests", "pod-ready.yaml"))
	if err != nil {
		return fmt.Errorf("stage of pods: %w", err)
	}
	var stage map[string]any
	if err := yaml.Unmarshal(text, &stage); err != nil {
		return fmt.Errorf("stage of pods: %w", err)
	}
	path := []string{"spec", "selector", "matchExpressions"}
	conditions, _, err := unstructured.NestedSlice(stage, path...)
	if err != nil {
		return fmt.Errorf("stage of pods: %w", err)
	}
	values := []any{"none"} // an empty list is not valid
	for _, image := range slices.Sorted(slices.Values(images)) {
		values = append(values, image)
	}
	conditions = append(conditions, map[string]any{"key": ".spec.containers.[].image", "operator": "NotIn", "values": values})
	if err := unstructured.SetNestedSlice(stage, conditions, path...); err != nil {
		return fmt.Errorf("stage of pods: %w", err)
	}
	return c.applyOne(ctx, &unstructured.Unstructured{Object: stage})
}

// isPassing reports whether an apply may succeed a moment later: the definition of the kind is not served yet, or the API server is still
// starting.
func isPassing(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err)
}
