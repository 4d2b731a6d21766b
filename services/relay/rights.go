package relay

// Right is what a relay has to be granted on one resource: a rule of a Kubernetes role.
type Right struct {
	// Group is the API group, "" for the core; Resource is the plural, with the subresource behind a slash.
	Group, Resource string
	Verbs           []string
	// For says which of the relay's duties need it.
	For string
}

// Rights are everything that the relay does in a cluster for the bundled drivers, and nothing more; the chart grants them. A
// test carries out every duty against an API server that takes notes, and compares. What else a tenant's programs read
// with k8s.get and k8s.watch, the operator grants.
func Rights() []Right {
	return []Right{
		{Group: "apps", Resource: "deployments", Verbs: []string{"get", "list"}, For: "k8s.get and k8s.list: whether controllers run, and workloadRef"},
		{Group: "apps", Resource: "statefulsets", Verbs: []string{"get", "list"}, For: "k8s.get and k8s.list: whether controllers run"},
		{
			Group: "argoproj.io", Resource: "applications", Verbs: []string{"create", "get", "list", "patch", "watch"},
			For: "argo.check, argo.sync, argo.terminate, and the standing report of drift",
		},
		{Group: "argoproj.io", Resource: "appprojects", Verbs: []string{"get"}, For: "argo.check and argo.sync: what an Application may deploy"},
		{Group: "argoproj.io", Resource: "rollouts", Verbs: []string{"get", "list", "watch"}, For: "argo.promote, argo.abort, argo.retry, k8s.watch, and the standing report of health"},
		{Group: "argoproj.io", Resource: "rollouts/status", Verbs: []string{"patch"}, For: "argo.promote, argo.abort, argo.retry"},
	}
}
