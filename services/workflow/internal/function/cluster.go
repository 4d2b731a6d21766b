package function

import "github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"

// agentField is the agent that a Function uses.
func agentField() Field {
	return Field{Name: "agent_id", Doc: "The number of the agent.", Type: Number, Required: true, Least: 1}
}

// kindFields are the kind of an object.
func kindFields() []Field {
	return []Field{
		{
			Name: "kind", Doc: "The kind, such as `Pod`. `Secret` is refused: its values would become part of the history.",
			Type: Text, Required: true,
		},
		{Name: "api_version", Doc: "The group and version, such as `apps/v1`; required for kinds that the relay does not know.", Type: Text},
	}
}

// pathsField is a list of dotted paths.
func pathsField(doc string) Field {
	return Field{Name: "fields", Doc: doc, Type: List, Required: true, Element: &Field{Type: Text, Required: true}}
}

// onCluster declares a Function that the relay of the agent carries out. The relay checks arguments as well
// (services/relay/internal/core) and refuses fields that it does not know, so the two change together, the relay first.
func onCluster(name, doc string, arguments ...Field) *Function {
	return &Function{spec: Spec{
		Name: name, Doc: doc, Location: activity.Cluster, Retry: RetryUnavailable, Idempotent: true, Effect: activity.Reads,
		Arguments: append([]Field{agentField()}, arguments...),
	}}
}

// changing states that a Function of the cluster is not one that only reads, and what its calls touch.
func changing(f *Function, effect activity.Effect, touches func(args map[string]any) []activity.Place) *Function {
	f.spec.Effect, f.spec.Touches = effect, touches
	return f
}

// touchesApplication is the Application of a call, and the namespace that one is made for.
func touchesApplication(args map[string]any) []activity.Place {
	agent, _ := whole(args["agent_id"])
	touched := []activity.Place{{Agent: agent, Application: text(args, "app_namespace") + "/" + text(args, "app_name")}}
	if to := text(object(args, "source"), "destination_namespace"); to != "" {
		touched = append(touched, activity.Place{Agent: agent, Namespace: to})
	}
	return touched
}

// touchesRollout is the Argo Rollout of a call.
func touchesRollout(args map[string]any) []activity.Place {
	agent, _ := whole(args["agent_id"])
	return []activity.Place{{Agent: agent, Namespace: text(args, "rollout_namespace"), Name: text(args, "rollout_name")}}
}

// get is k8s.get. A Secret is refused by the relay (D27).
func get() *Function {
	return onCluster("k8s.get",
		"Reads an object. Answers its fields as the API server has them, and `found`; an object that does not exist is `{found: False}`.",
		append(kindFields(),
			Field{Name: "namespace", Doc: "The object's namespace; empty for a cluster-scoped one.", Type: Text},
			Field{Name: "name", Doc: "The object's name.", Type: Text, Required: true})...)
}

// listObjects is k8s.list. Secrets are refused by the relay.
func listObjects() *Function {
	return onCluster("k8s.list",
		"Reads the objects of a kind. Answers `{items, truncated}`: the name, the namespace and the selected fields of up to 100 objects, and\n"+
			"whether there are more.",
		append(kindFields(),
			Field{Name: "namespace", Doc: "The objects' namespace; by default all.", Type: Text},
			Field{Name: "labels", Doc: "A label selector, as `kubectl` takes it; by default all objects.", Type: Text},
			pathsField("The fields to read, as dotted paths."))...)
}

// onApplication adds the Argo CD Application.
func onApplication(name, doc string, arguments ...Field) *Function {
	return onCluster(name, doc, append([]Field{
		{Name: "app_name", Doc: "The name of the Argo CD Application.", Type: Text, Required: true},
		{Name: "app_namespace", Doc: "The namespace of the Argo CD Application.", Type: Text, Required: true},
	}, arguments...)...)
}

// modeField is who makes an Application.
func modeField() Field {
	return Field{
		Name: "mode", Type: Text, OneOf: []string{"managed", "existing"},
		Doc: "`managed`, the default, creates the Application if it does not exist, from `source`; `existing` requires that it exists.",
	}
}

// checkApplication is argo.check.
func checkApplication() *Function {
	return onApplication("argo.check",
		"Checks whether `argo.sync` would accept an Application, by the same rules, and changes nothing. Answers `{found, managed}`: whether it\n"+
			"exists, and whether Lockstep has created it. What `argo.sync` would refuse is the same error.",
		modeField(), source(), allowed())
}

// terminate is argo.terminate.
func terminate() *Function {
	return changing(onApplication("argo.terminate",
		"Ends the sync that was started under the id `operation`, and no other, and waits until Argo CD has ended it. Answers `{phase}`: the\n"+
			"phase of the sync, or `None` if Argo CD has none with that id.",
		Field{Name: "operation", Doc: "The id of the sync.", Type: Text, Required: true}), activity.TakesBack, touchesApplication)
}

// source is where an Application that has to be created finds its manifests, and where they go.
func source() Field {
	return Field{Name: "source", Doc: "What to create the Application from.", Type: Object, Fields: []Field{
		{Name: "repo_url", Doc: "The URL of the repository with the manifests.", Type: Text, Required: true},
		{Name: "path", Doc: "The folder of the manifests in the repository.", Type: Text, Required: true},
		{Name: "project", Doc: "The Argo CD project; `default` by default.", Type: Text},
		{Name: "destination_namespace", Doc: "The namespace to deploy to.", Type: Text, Required: true},
	}}
}

// allowed is what the owner of an environment allows: patterns.
func allowed() Field {
	patterns := func(name, doc string) Field {
		return Field{Name: name, Doc: doc, Type: List, Element: &Field{Type: Text, Required: true}}
	}
	return Field{
		Name: "allowed", Type: Object,
		Doc: "What the owner of the environment allows, in addition to the relay's own limits: patterns, in which `*` stands for any text.",
		Fields: []Field{
			patterns("projects", "Argo CD projects."),
			patterns("destination_namespaces", "Namespaces that may be deployed to."),
			patterns("repositories", "Repositories whose manifests may be deployed."),
		},
	}
}

// sync is argo.sync. It answers once our own operation has succeeded (E43, D21), or with its progress. Calls with the same operation
// are about one sync.
func sync() *Function {
	return changing(onApplication("argo.sync",
		"Has Argo CD sync an Application to a commit. An Application that Lockstep has not created has to carry the annotation\n"+
			"`lockstep.dev/authorized`.\n\n"+
			"With `wait = \"end\"` it answers `{revision, phase}` when the sync has succeeded. With `wait = \"start\"` it answers at once with `{revision,\n"+
			"phase, message, rollouts}` of the sync in progress: `phase` is Argo CD's or `Pending`, `message` is what it waits for, and `rollouts`\n"+
			"are those applied so far. Called again with the same `operation`, it answers the progress since. Applications with hooks or sync waves\n"+
			"need this, because their sync ends only after their Rollouts have been promoted.",
		Field{Name: "revision", Doc: "The commit to sync to.", Type: Text, Required: true},
		modeField(),
		Field{Name: "prune", Doc: "Also delete objects that the manifests no longer have.", Type: Flag},
		Field{Name: "wait", Doc: "When to answer: `end` is the default.", Type: Text, OneOf: []string{"end", "start"}},
		Field{Name: "operation", Doc: "An id, such as `uuid()`: all calls with the same id are about one sync.", Type: Text},
		Field{
			Name: "supersede", Type: Flag,
			Doc: "End a sync in progress that Lockstep has started under another id. Otherwise, and if Lockstep has not started it, the call waits for its end.",
		},
		// What Argo CD renders with in place of what the repository says (E45), as Argo CD names it.
		Field{Name: "overrides", Doc: "Overrides of what the repository has, as Argo CD names them.", Type: Object, Fields: []Field{
			{Name: "kustomize", Doc: "Overrides for Kustomize.", Type: Object, Fields: []Field{
				{Name: "images", Doc: "Images, as `name=image`.", Type: List, Element: &Field{Type: Text, Required: true}},
				{Name: "patches", Doc: "Patches.", Type: List, Element: &Field{Type: Free}},
			}},
			{
				Name: "helm", Doc: "Overrides for Helm.", Type: Object,
				Fields: []Field{{Name: "valuesObject", Doc: "Values.", Type: Free, Required: true}},
			},
		}},
		source(), allowed()), activity.Changes, touchesApplication)
}

// promote is argo.promote (E39). The pause of a blue-green Rollout is step 0, and needs its pod_hash. The step is named, never "the next
// one": repeating the call after the Rollout has moved on is then a no-op (E28).
func promote() *Function {
	return changing(onRollout("argo.promote",
		"Ends exactly one pause of an Argo Rollout: that of the step `step_index`. Answers `{promoted, current_step_index}`; `promoted` is false\n"+
			"if the Rollout has passed that step already.",
		Field{
			Name: "step_index", Type: Number, Required: true,
			Doc: "The index of the step, from 0. The one pause of a blue-green Rollout is step 0, and needs `pod_hash`.",
		}), activity.Changes, touchesRollout)
}

// abort is argo.abort (D18, E73).
func abort() *Function {
	return changing(onRollout("argo.abort", "Returns an Argo Rollout to its stable version. Answers `{aborted}`."),
		activity.TakesBack, touchesRollout)
}

// retry is argo.retry (D18, E73).
func retry() *Function {
	return changing(onRollout("argo.retry", "Restarts an aborted Argo Rollout from its first step. Answers `{retried}`."),
		activity.Changes, touchesRollout)
}

// onRollout adds the Argo Rollout.
func onRollout(name, doc string, arguments ...Field) *Function {
	return onCluster(name, doc, append([]Field{
		{Name: "rollout_name", Doc: "The name of the Argo Rollout.", Type: Text, Required: true},
		{Name: "rollout_namespace", Doc: "The namespace of the Argo Rollout.", Type: Text, Required: true},
		{Name: "pod_hash", Doc: "The pod hash of the version that is meant. A Rollout with another one is refused.", Type: Text},
	}, arguments...)...)
}
