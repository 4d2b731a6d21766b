package function

import "github.com/lockstep-cd/lockstep/services/workflow/internal/core"

// onCluster declares a Function that the relay of the agent carries out. The relay checks arguments by itself
// (services/relay/internal/core): a field that one side lacks is refused by it, so the two change together, the relay
// first.
func onCluster(name string, arguments ...Field) *Function {
	agent := Field{Name: "agent_id", Type: Number, Required: true, Least: 1}
	return &Function{spec: Spec{
		Name: name, Location: core.Cluster, Retry: RetryUnavailable, Idempotent: true,
		Arguments: append([]Field{agent}, arguments...),
	}}
}

// get reads one object: its fields, and found. An object that does not exist is {"found": false}. A Secret is refused
// by the relay (D27).
func get() *Function {
	return onCluster("k8s.get",
		Field{Name: "kind", Type: Text, Required: true},
		Field{Name: "api_version", Type: Text},
		Field{Name: "namespace", Type: Text},
		Field{Name: "name", Type: Text, Required: true})
}

// listObjects is k8s.list, which reads some fields of each object of a kind: items, and whether there are more (truncated). Secrets are refused by the relay.
func listObjects() *Function {
	return onCluster("k8s.list",
		Field{Name: "kind", Type: Text, Required: true},
		Field{Name: "api_version", Type: Text},
		Field{Name: "namespace", Type: Text},
		Field{Name: "labels", Type: Text},
		Field{Name: "fields", Type: List, Required: true, Element: &Field{Type: Text, Required: true}})
}

// onApplication adds which Argo CD Application is meant.
func onApplication(name string, arguments ...Field) *Function {
	return onCluster(name, append([]Field{
		{Name: "app_name", Type: Text, Required: true},
		{Name: "app_namespace", Type: Text, Required: true},
	}, arguments...)...)
}

// checkApplication is argo.check, which says whether argo.sync would take an Application: found, and whether Lockstep has created it (managed). It changes nothing.
func checkApplication() *Function {
	return onApplication("argo.check", Field{Name: "mode", Type: Text, OneOf: []string{"managed", "existing"}}, source(), allowed())
}

// terminate ends the sync that was begun under an operation's id, and no other: terminated.
func terminate() *Function {
	return onApplication("argo.terminate", Field{Name: "operation", Type: Text, Required: true})
}

// source says where an Application that has to be created finds its manifests, and where they go.
func source() Field {
	return Field{Name: "source", Type: Object, Fields: []Field{
		{Name: "repo_url", Type: Text, Required: true},
		{Name: "path", Type: Text, Required: true},
		{Name: "project", Type: Text},
		{Name: "destination_namespace", Type: Text, Required: true},
	}}
}

// allowed is what the owner of an environment allows: patterns.
func allowed() Field {
	patterns := func(name string) Field {
		return Field{Name: name, Type: List, Element: &Field{Type: Text, Required: true}}
	}
	return Field{Name: "allowed", Type: Object, Fields: []Field{patterns("projects"), patterns("destination_namespaces"), patterns("repositories")}}
}

// sync brings an Argo CD Application to a commit: revision and phase, once our own operation has succeeded (E43, D21), or, with wait
// "start", as far as it has come. An operation that is given is an id: calls with the same one are about one sync.
func sync() *Function {
	return onApplication("argo.sync",
		Field{Name: "revision", Type: Text, Required: true},
		Field{Name: "mode", Type: Text, OneOf: []string{"managed", "existing"}},
		Field{Name: "prune", Type: Flag},
		Field{Name: "wait", Type: Text, OneOf: []string{"end", "start"}},
		Field{Name: "operation", Type: Text},
		Field{Name: "supersede", Type: Flag},
		// What Argo CD renders with in place of what the repository says (E45), in Argo CD's words.
		Field{Name: "overrides", Type: Object, Fields: []Field{
			{Name: "kustomize", Type: Object, Fields: []Field{
				{Name: "images", Type: List, Element: &Field{Type: Text, Required: true}},
				{Name: "patches", Type: List, Element: &Field{Type: Free}},
			}},
			{Name: "helm", Type: Object, Fields: []Field{{Name: "valuesObject", Type: Free, Required: true}}},
		}},
		source(), allowed())
}

// promote ends exactly one pause of an Argo Rollout: promoted and current_step_index (E39). That of a blue-green one is
// step 0, and needs its pod_hash. The step is named, never
// "the next one": a repeat after the Rollout has moved on then does nothing (E28).
func promote() *Function {
	return onRollout("argo.promote", Field{Name: "step_index", Type: Number, Required: true})
}

// abort takes an Argo Rollout back to its stable version: aborted (D18, E73).
func abort() *Function { return onRollout("argo.abort") }

// retry starts an aborted Argo Rollout again from its first step: retried (D18, E73).
func retry() *Function { return onRollout("argo.retry") }

// onRollout adds which Rollout is meant. pod_hash, where given, has the relay refuse one that has gone on to another
// version.
func onRollout(name string, arguments ...Field) *Function {
	return onCluster(name, append([]Field{
		{Name: "rollout_name", Type: Text, Required: true},
		{Name: "rollout_namespace", Type: Text, Required: true},
		{Name: "pod_hash", Type: Text},
	}, arguments...)...)
}
