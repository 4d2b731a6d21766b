package relay

import "strings"

// Right is a right that a relay needs on one resource: a rule of a Kubernetes role.
type Right struct {
	// Group is the API group, "" for the core group; Resource is the plural, with a subresource after a slash.
	Group, Resource string
	Verbs           []string
	// For lists the duties that need it.
	For string
	// Tasks means that it is only needed, and only granted, where the configuration names namespaces for Workflows or Jobs.
	Tasks bool
}

// Rights lists exactly the rights that the relay needs in a cluster for the bundled drivers; the chart grants them. A test performs every
// duty against an API server that records requests, and compares. The operator grants what other programs read with k8s.get and k8s.watch.
func Rights() []Right {
	return []Right{
		{
			Resource: "pods", Verbs: []string{"list"}, Tasks: true,
			For: "workflow.logs and job.logs: which pods belong to it",
		},
		{Resource: "pods/log", Verbs: []string{"get"}, Tasks: true, For: "workflow.logs and job.logs"},
		{
			Group: "apps", Resource: "deployments", Verbs: []string{"get", "list"},
			For: "k8s.get and k8s.list: whether controllers run, and workloadRef",
		},
		{Group: "apps", Resource: "statefulsets", Verbs: []string{"get", "list"}, For: "k8s.get and k8s.list: whether controllers run"},
		{
			Group: "argoproj.io", Resource: "analysisruns", Verbs: []string{"create", "get", "list", "patch", "watch"}, Tasks: true,
			For: "argo.analyze, argo.end_analysis and k8s.watch",
		},
		{Group: "argoproj.io", Resource: "analysistemplates", Verbs: []string{"get"}, Tasks: true, For: "argo.analyze"},
		{Group: "argoproj.io", Resource: "clusteranalysistemplates", Verbs: []string{"get"}, Tasks: true, For: "argo.analyze"},
		{
			Group: "argoproj.io", Resource: "applications", Verbs: []string{"create", "get", "list", "patch", "watch"},
			For: "argo.check, argo.sync, argo.terminate, and the standing report of drift",
		},
		{Group: "argoproj.io", Resource: "appprojects", Verbs: []string{"get"}, For: "argo.check and argo.sync: what an Application may deploy"},
		{
			Group: "argoproj.io", Resource: "rollouts", Verbs: []string{"get", "list", "watch"},
			For: "argo.promote, argo.abort, argo.retry, k8s.watch, and the standing report of health",
		},
		{Group: "argoproj.io", Resource: "rollouts/status", Verbs: []string{"patch"}, For: "argo.promote, argo.abort, argo.retry"},
		{
			Group: "argoproj.io", Resource: "workflows", Verbs: []string{"create", "get", "list", "patch", "watch"}, Tasks: true,
			For: "workflow.submit, workflow.stop, workflow.terminate, workflow.logs, k8s.get and k8s.watch",
		},
		{
			Group: "batch", Resource: "jobs", Verbs: []string{"create", "get", "list", "patch", "watch"}, Tasks: true,
			For: "job.run, job.stop, job.logs, k8s.get and k8s.watch",
		},
	}
}

// RightsOnObjects lists the rights that the relay needs in addition for what its configuration allows (allow_apply, allow_patch,
// allow_delete, allow_logs). Lists of resources have no patterns here.
func RightsOnObjects(apply, patch, remove []string, logs bool) []Right {
	var all []Right
	for _, each := range []struct {
		resources, verbs []string
		what             string
	}{
		{apply, []string{"create", "delete", "get", "list", "patch"}, "k8s.apply, with what it prunes"},
		{patch, []string{"get", "patch"}, "k8s.patch"},
		{remove, []string{"delete", "get"}, "k8s.delete"},
	} {
		for _, name := range each.resources {
			resource, group, _ := strings.Cut(name, ".")
			all = append(all, Right{Group: group, Resource: resource, Verbs: each.verbs, For: each.what})
		}
	}
	if logs {
		all = append(all, Right{Resource: "pods", Verbs: []string{"get", "list"}, For: "k8s.logs"},
			Right{Resource: "pods/log", Verbs: []string{"get"}, For: "k8s.logs"})
	}
	return all
}
