package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// resource is the API server's resource of a kind.
type resource struct {
	gvr        schema.GroupVersionResource
	namespaced bool
}

// known returns the resources that need no discovery, by name: kind, group/version, plural, and whether it is cluster-scoped.
func known(kind string) (resource, bool) {
	in := func(group, version, plural string) (resource, bool) {
		return resource{schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, true}, true
	}
	wide := func(group, version, plural string) (resource, bool) {
		r, ok := in(group, version, plural)
		r.namespaced = false
		return r, ok
	}
	switch kind {
	case "Pod":
		return in("", "v1", "pods")
	case "Service":
		return in("", "v1", "services")
	case "ConfigMap":
		return in("", "v1", "configmaps")
	case "ServiceAccount":
		return in("", "v1", "serviceaccounts")
	case "Endpoints":
		return in("", "v1", "endpoints")
	case "PersistentVolumeClaim":
		return in("", "v1", "persistentvolumeclaims")
	case "Namespace":
		return wide("", "v1", "namespaces")
	case "Node":
		return wide("", "v1", "nodes")
	case "Deployment":
		return in("apps", "v1", "deployments")
	case "ReplicaSet":
		return in("apps", "v1", "replicasets")
	case "StatefulSet":
		return in("apps", "v1", "statefulsets")
	case "DaemonSet":
		return in("apps", "v1", "daemonsets")
	case "Job":
		return in("batch", "v1", "jobs")
	case "CronJob":
		return in("batch", "v1", "cronjobs")
	case "Ingress":
		return in("networking.k8s.io", "v1", "ingresses")
	case "CustomResourceDefinition":
		return wide("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	case "Application":
		return in("argoproj.io", "v1alpha1", "applications")
	case "ApplicationSet":
		return in("argoproj.io", "v1alpha1", "applicationsets")
	case "AppProject":
		return in("argoproj.io", "v1alpha1", "appprojects")
	case "Rollout":
		return in("argoproj.io", "v1alpha1", "rollouts")
	case "Workflow":
		return in("argoproj.io", "v1alpha1", "workflows")
	case "AnalysisRun":
		return in("argoproj.io", "v1alpha1", "analysisruns")
	case "AnalysisTemplate":
		return in("argoproj.io", "v1alpha1", "analysistemplates")
	case "ClusterAnalysisTemplate":
		return wide("argoproj.io", "v1alpha1", "clusteranalysistemplates")
	case "Experiment":
		return in("argoproj.io", "v1alpha1", "experiments")
	default:
		return resource{}, false
	}
}

// client returns the dynamic client for the object's kind and namespace.
func (c *Cluster) client(ctx context.Context, ref core.Ref) (dynamic.ResourceInterface, error) {
	r, err := c.resolve(ctx, ref.Kind)
	if err != nil {
		return nil, err
	}
	if !r.namespaced {
		return c.api.Resource(r.gvr), nil
	}
	if ref.Namespace == "" {
		return nil, fault.InvalidFields(fault.Field{Name: "namespace", Problem: "missing, expected the namespace of the " + ref.Kind.Kind})
	}
	return c.api.Resource(r.gvr).Namespace(ref.Namespace), nil
}

// resolve returns the resource of a kind: from the table, with the requested version if there is one, else from the API server, queried
// once.
func (c *Cluster) resolve(ctx context.Context, k core.Kind) (resource, error) {
	r, isKnown := known(k.Kind)
	if k.APIVersion == "" {
		if !isKnown {
			return resource{}, unknownKind(k, "give its api_version")
		}
		return r, nil
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return resource{}, fault.InvalidFields(fault.Field{Name: "api_version", Problem: fmt.Sprintf(
			"found %q, expected version or group/version", k.APIVersion)})
	}
	// Another version of the same kind: plural and scope of those in the table are the same in all versions.
	if isKnown && r.gvr.Group == gv.Group {
		r.gvr.Version = gv.Version
		return r, nil
	}
	return c.discover(ctx, k, gv)
}

// discover looks up the resources of a group and version at the API server. The result is kept as long as the process lives: a resource is
// never renamed.
func (c *Cluster) discover(ctx context.Context, k core.Kind, gv schema.GroupVersion) (resource, error) {
	// The lock is not held during the request; concurrent lookups get the same result.
	c.mu.Lock()
	r, found := c.discovered[k]
	c.mu.Unlock()
	if found {
		return r, nil
	}
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	body, err := c.raw.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		err = classify(err, "look up", core.Ref{Kind: k, Name: k.APIVersion})
		if fault.Is(err, fault.NotFound) {
			return resource{}, unknownKind(k, "the cluster does not serve "+k.APIVersion)
		}
		return resource{}, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return resource{}, fmt.Errorf("decode the resources of %s: %w", k.APIVersion, err)
	}
	for _, candidate := range list.APIResources {
		// A name with a slash is a subresource, such as deployments/scale, which may have the same kind.
		if candidate.Kind == k.Kind && !strings.Contains(candidate.Name, "/") {
			r = resource{gvr: gv.WithResource(candidate.Name), namespaced: candidate.Namespaced}
			c.mu.Lock()
			c.discovered[k] = r
			c.mu.Unlock()
			return r, nil
		}
	}
	return resource{}, unknownKind(k, k.APIVersion+" has no such kind")
}

// unknownKind is deliberately not fault.NotFound: k8s.get would return {"found": false}, and a program would wait for an object of a kind
// that cannot exist.
func unknownKind(k core.Kind, why string) error {
	return &core.Error{Code: core.CodeUnknownKind, Message: fmt.Sprintf("kind %q is unknown: %s", k.Kind, why)}
}
