package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

//go:embed manifests
var manifests embed.FS

// fieldManager is the name under which the API server records the fields that it sets.
const fieldManager = "lockstep-e2e"

// resource is the API resource of a kind.
type resource struct {
	plural     string
	namespaced bool
}

// resources returns the kinds that are written and read here.
func resources() map[string]resource {
	return map[string]resource{
		"Namespace": {"namespaces", false}, "Node": {"nodes", false}, "ConfigMap": {"configmaps", true}, "Job": {"jobs", true},
		"Secret": {"secrets", true},
		"Pod":    {"pods", true}, "Deployment": {"deployments", true}, "StatefulSet": {"statefulsets", true}, "ReplicaSet": {"replicasets", true},
		"CustomResourceDefinition": {"customresourcedefinitions", false},
		"ClusterRole":              {"clusterroles", false}, "ClusterRoleBinding": {"clusterrolebindings", false},
		"Stage": {"stages", false}, "AppProject": {"appprojects", true}, "Application": {"applications", true},
		"ApplicationSet": {"applicationsets", true}, "Rollout": {"rollouts", true}, "AnalysisTemplate": {"analysistemplates", true},
		"Workflow": {"workflows", true}, "WorkflowTemplate": {"workflowtemplates", true}, "ClusterLogs": {"clusterlogs", false},
		"GitRepository": {"gitrepositories", true}, "Kustomization": {"kustomizations", true},
		"Service": {"services", true}, "Widget": {"widgets", true},
		"Role": {"roles", true}, "RoleBinding": {"rolebindings", true}, "ServiceAccount": {"serviceaccounts", true},
	}
}

// Resource returns a client for the objects of a kind. The namespace is ignored for cluster-scoped kinds.
func (c *Cluster) Resource(apiVersion, kind, namespace string) (dynamic.ResourceInterface, error) {
	return Resource(c.api, apiVersion, kind, namespace)
}

// Resource is like the method, with any client.
func Resource(api dynamic.Interface, apiVersion, kind, namespace string) (dynamic.ResourceInterface, error) {
	r, ok := resources()[kind]
	if !ok {
		return nil, fault.New(fault.Invalid, "kind: found %q, expected one that package cluster lists", kind)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("apiVersion of %s: %w", kind, err)
	}
	all := api.Resource(gv.WithResource(r.plural))
	if !r.namespaced {
		return all, nil
	}
	return all.Namespace(namespace), nil
}

// Apply applies objects server-side. If the definition of a kind has just been applied, it waits until the kind is served.
func (c *Cluster) Apply(ctx context.Context, text []byte) error {
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		if object == nil {
			continue
		}
		if err := c.applyOne(ctx, &unstructured.Unstructured{Object: object}); err != nil {
			return err
		}
	}
}

func (c *Cluster) applyOne(ctx context.Context, u *unstructured.Unstructured) error {
	what := u.GetKind() + " " + u.GetName()
	client, err := c.Resource(u.GetAPIVersion(), u.GetKind(), u.GetNamespace())
	if err != nil {
		return err
	}
	for {
		_, err := client.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err == nil {
			return nil
		}
		if !isPassing(err) {
			return fmt.Errorf("apply %s: %w", what, err)
		}
		if clock.Sleep(ctx, c.config.Clock, lookInterval) != nil {
			return fmt.Errorf("apply %s: %w", what, err)
		}
	}
}

func (c *Cluster) applyFolder(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	// Definitions come before their objects.
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return rank(a.Name()) - rank(b.Name()) })
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
		if err := c.Apply(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return nil
}

func rank(file string) int {
	if strings.HasSuffix(file, "-crd.yaml") || strings.HasPrefix(file, "kwok.") || strings.HasPrefix(file, "argoproj.io_") {
		return 0
	}
	return 1
}

// applyOwn applies the manifests embedded in this package.
func (c *Cluster) applyOwn(ctx context.Context) error {
	for _, name := range []string{"base.yaml", "relay.yaml"} {
		text, err := manifests.ReadFile("manifests/" + name)
		if err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
		if err := c.Apply(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return c.SetBroken(ctx, nil)
}

// awaitNode waits until the node accepts pods and the stand-ins of the controllers run, which shows that scheduler, controller manager and
// KWOK work.
func (c *Cluster) awaitNode(ctx context.Context) error {
	return errors.Join(
		c.awaitReplica(ctx, "StatefulSet", "argocd", "argocd-application-controller"),
		c.awaitReplica(ctx, "Deployment", "argo-rollouts", "argo-rollouts"),
	)
}

func (c *Cluster) awaitReplica(ctx context.Context, kind, namespace, name string) error {
	client, err := c.Resource("apps/v1", kind, namespace)
	if err != nil {
		return err
	}
	touched := c.config.Clock.Now()
	for {
		u, err := client.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			if n, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas"); n > 0 {
				return nil
			}
			err = errors.New("it has no ready replica")
		}
		if now := c.config.Clock.Now(); now.Sub(touched) > touchEvery {
			touched = now
			err = errors.Join(err, c.touch(ctx, namespace))
		}
		if clock.Sleep(ctx, c.config.Clock, lookInterval) != nil {
			return fmt.Errorf("wait for %s %s/%s: %w; the last lines of KWOK:\n%s", kind, namespace, name, err, tail(c.LogFile("kwok")))
		}
	}
}

// touchEvery is how often KWOK is made to look again at what it does not make ready.
const touchEvery = 5 * time.Second

// touch changes an annotation of KWOK's stages and of the pods of a namespace. KWOK v0.7.0 computes its list of stages once for each
// resource version, and does so while its cache is being filled: what it has missed by then, it misses until a stage changes, and the pods
// that matched nothing wait for a change of their own.
func (c *Cluster) touch(ctx context.Context, namespace string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"lockstep.dev/touched":%q}}}`, c.config.Clock.Now().Format(time.RFC3339Nano))
	for _, kind := range []struct{ apiVersion, kind string }{{"kwok.x-k8s.io/v1alpha1", "Stage"}, {"v1", "Pod"}} {
		client, err := c.Resource(kind.apiVersion, kind.kind, namespace)
		if err != nil {
			return err
		}
		all, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.kind, err)
		}
		for i := range all.Items {
			if _, err := client.Patch(ctx, all.Items[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("touch %s %s: %w", kind.kind, all.Items[i].GetName(), err)
			}
		}
	}
	return nil
}
