package apiserver

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resource is a kind of object that the server keeps.
type Resource struct {
	// Group, Version and Plural are how it is addressed; the core group is "".
	Group, Version, Plural string
	Kind                   string
	Namespaced             bool
	// Status is set if the status is a subresource: writing the object leaves it alone, writing it leaves the rest alone.
	Status bool
}

// APIVersion is the apiVersion of the resource's objects.
func (r Resource) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// The resources that controllers refer to.
//
//nolint:gochecknoglobals // constants of a struct type
var (
	Namespaces   = Resource{"", "v1", "namespaces", "Namespace", false, true}
	Deployments  = Resource{"apps", "v1", "deployments", "Deployment", true, true}
	StatefulSets = Resource{"apps", "v1", "statefulsets", "StatefulSet", true, true}
	ReplicaSets  = Resource{"apps", "v1", "replicasets", "ReplicaSet", true, true}
	// Applications have no status subresource, in Argo CD as here.
	Applications = Resource{"argoproj.io", "v1alpha1", "applications", "Application", true, false}
	AppProjects  = Resource{"argoproj.io", "v1alpha1", "appprojects", "AppProject", true, false}
	// Workflows have no status subresource either.
	Workflows = Resource{"argoproj.io", "v1alpha1", "workflows", "Workflow", true, false}
	Rollouts  = Resource{"argoproj.io", "v1alpha1", "rollouts", "Rollout", true, true}
)

// Resources are all that the server keeps, in the order of discovery.
func Resources() []Resource {
	return []Resource{
		Namespaces,
		{"", "v1", "nodes", "Node", false, true},
		{"", "v1", "pods", "Pod", true, true},
		{"", "v1", "services", "Service", true, true},
		{"", "v1", "configmaps", "ConfigMap", true, false},
		{"", "v1", "secrets", "Secret", true, false},
		{"", "v1", "serviceaccounts", "ServiceAccount", true, false},
		{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, true},
		{"", "v1", "events", "Event", true, false},
		Deployments, StatefulSets, ReplicaSets,
		{"apps", "v1", "daemonsets", "DaemonSet", true, true},
		{"batch", "v1", "jobs", "Job", true, true},
		{"batch", "v1", "cronjobs", "CronJob", true, true},
		{"autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true, true},
		{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, true},
		{"networking.k8s.io", "v1", "ingresses", "Ingress", true, true},
		{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true, false},
		{"rbac.authorization.k8s.io", "v1", "roles", "Role", true, false},
		{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true, false},
		Applications, AppProjects,
		{"argoproj.io", "v1alpha1", "applicationsets", "ApplicationSet", true, true},
		Rollouts, Workflows,
		{"argoproj.io", "v1alpha1", "analysistemplates", "AnalysisTemplate", true, false},
		{"argoproj.io", "v1alpha1", "analysisruns", "AnalysisRun", true, true},
	}
}

// ByKind finds the resource of an apiVersion and kind.
func ByKind(apiVersion, kind string) (Resource, bool) {
	for _, r := range Resources() {
		if r.Kind == kind && r.APIVersion() == apiVersion {
			return r, true
		}
	}
	return Resource{}, false
}

func byPlural(group, version, plural string) (Resource, bool) {
	for _, r := range Resources() {
		if r.Group == group && r.Version == version && r.Plural == plural {
			return r, true
		}
	}
	return Resource{}, false
}

// resourceList is the discovery document of a group and version; false where there is none.
func resourceList(group, version string) (metav1.APIResourceList, bool) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	for _, r := range Resources() {
		if r.Group != group || r.Version != version {
			continue
		}
		list.GroupVersion = r.APIVersion()
		list.APIResources = append(list.APIResources,
			metav1.APIResource{Name: r.Plural, SingularName: "", Namespaced: r.Namespaced, Kind: r.Kind, Verbs: verbs})
		if r.Status {
			list.APIResources = append(list.APIResources,
				metav1.APIResource{Name: r.Plural + "/status", Namespaced: r.Namespaced, Kind: r.Kind, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	return list, len(list.APIResources) > 0
}

// groupList is the discovery document of all groups but the core one.
func groupList() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	var seen []string
	for _, r := range Resources() {
		if r.Group == "" || slices.Contains(seen, r.Group) {
			continue
		}
		seen = append(seen, r.Group)
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.APIVersion(), Version: r.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return list
}
