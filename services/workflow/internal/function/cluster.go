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

// sync brings an Argo CD Application to a commit: revision and phase, once our own operation has succeeded (E43, D21).
func sync() *Function {
	return onCluster("argo.sync",
		Field{Name: "app_name", Type: Text, Required: true},
		Field{Name: "app_namespace", Type: Text, Required: true},
		Field{Name: "revision", Type: Text, Required: true},
		Field{Name: "mode", Type: Text, OneOf: []string{"managed", "existing"}},
		Field{Name: "prune", Type: Flag},
		// What Argo CD renders with in place of what the repository says (E45), in Argo CD's words.
		Field{Name: "overrides", Type: Object, Fields: []Field{
			{Name: "kustomize", Type: Object, Fields: []Field{
				{Name: "images", Type: List, Element: &Field{Type: Text, Required: true}},
				{Name: "patches", Type: List, Element: &Field{Type: Free}},
			}},
			{Name: "helm", Type: Object, Fields: []Field{{Name: "valuesObject", Type: Free, Required: true}}},
		}},
		Field{Name: "source", Type: Object, Fields: []Field{
			{Name: "repo_url", Type: Text, Required: true},
			{Name: "path", Type: Text, Required: true},
			{Name: "project", Type: Text},
			{Name: "destination_namespace", Type: Text, Required: true},
		}})
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
