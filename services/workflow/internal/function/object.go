package function

import (
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// mostObjects is the maximum number of objects in one call, here as in the relay.
const mostObjects = 2000

// owned states that a Function changes only objects of an owner, and what its calls touch.
func owned(f *Function, touches func(args map[string]any) []activity.Place) *Function {
	f = changing(f, activity.Changes, touches)
	f.spec.Owned = true
	return f
}

// environmentField names the environment of the owner.
func environmentField() Field {
	return Field{
		Name: "environment_id", Type: Number, Least: 1,
		Doc: "The environment whose objects are changed. It is required only if several environments of the rollout share the namespace.",
	}
}

// objectFields name one object.
func objectFields() []Field {
	return []Field{
		{Name: "api_version", Doc: "The group and version, such as `apps/v1`.", Type: Text, Required: true},
		{Name: "kind", Doc: "The kind, such as `Deployment`.", Type: Text, Required: true},
		{Name: "namespace", Doc: "The object's namespace; absent for a cluster-scoped one.", Type: Text},
		{Name: "name", Doc: "The object's name.", Type: Text, Required: true},
	}
}

// ownership is what the Functions that change objects have in common.
const ownership = "It changes only objects of its owner: those with the label `lockstep.dev/owner` of the rollout's application and environment, which\n" +
	"`k8s.apply` sets. An object without an owner is refused with the code `owned`, unless the relay's `allow_objects` names it, or its\n" +
	"annotation `lockstep.dev/authorized` names the organization; one of another owner always is."

// applyObjects is k8s.apply.
func applyObjects() *Function {
	f := owned(onCluster("k8s.apply",
		"Applies objects (server-side apply) and, with `prune`, deletes those that the owner no longer has. Answers `{created, configured, unchanged,\n"+
			"changed, more_changed, pruned, more_pruned, not_pruned, more_not_pruned, owner, digest}`: three numbers, the objects that have changed\n"+
			"with their `action`, those that were deleted, those that their annotation `lockstep.dev/prune: \"false\"` or\n"+
			"`helm.sh/resource-policy: keep` has kept or that the owner has applied again meanwhile, the value of the label, and the SHA-256 of the\n"+
			"objects of the call. In a dry\n"+
			"run, an object that exists has `fields` as well: `{path, before, after}` of the first 20 that would change, with the values of images and\n"+
			"numbers of replicas only; `more_fields` says whether there are others.\n\n"+ownership+"\n\n"+
			"A field that another manager sets to another value is an error with the code `conflict`, which names field and manager; nothing is forced.\n"+
			"Nothing is changed before all objects were compared with what the relay allows (`allow_apply`, `allow_destination_namespaces`) and with\n"+
			"their owners. Namespaces come first, then definitions of kinds, then what workloads need, then the rest. For a kind that the cluster does\n"+
			"not serve yet it waits up to a minute.\n\n"+
			"At most 2,000 objects fit into a call, and 1 MiB. Apply a larger set with several calls, and prune with the last one, which names the objects\n"+
			"of the others in `keep`. Secrets are refused: their values would become part of the history.\n\n"+
			"`changed` names as many objects as fit into 256 KiB, `pruned` and `not_pruned` as many as fit into 64 KiB each; `more_changed`,\n"+
			"`more_pruned` and `more_not_pruned` are the numbers of the others. In a dry run `changed` is whole: if it does not fit into an answer\n"+
			"of 512 KiB, the error is `too_large`.\n\n"+
			"All that is to be pruned is found before the first of it is deleted, at most 100,000 objects of one kind in a namespace. What changes\n"+
			"after that is looked at again: it stays if it asks to be kept, is another owner's by then, was applied again or was replaced. If a\n"+
			"deletion fails, the error says how many objects were deleted, and names the first 10.",
		environmentField(),
		Field{
			Name: "objects", Doc: "The objects, as manifests have them. Their status is ignored, and `lockstep.dev/` labels are refused.",
			Type: List, Required: true, Element: &Field{Type: Free},
		},
		Field{Name: "namespace", Doc: "The namespace of namespaced objects that name none.", Type: Text},
		Field{
			Name: "scope", Type: Text, OneOf: []string{"namespaced", "cluster"},
			Doc: "Whether the objects are `namespaced`, the default, with the namespaces themselves, or cluster-scoped ones. The second needs a passage for " +
				"the whole cluster.",
		},
		Field{Name: "create_namespaces", Doc: "Create namespaces that do not exist. They are never pruned.", Type: Flag},
		Field{
			Name: "prune", Type: Flag,
			Doc: "Delete the owner's objects that are neither in `objects` nor in `keep`, of all kinds that the relay lets `k8s.apply` change, in the " +
				"namespaces of the objects and `namespaces`. Namespaces and definitions of kinds are never pruned.",
		},
		Field{
			Name: "keep", Doc: "Objects of the owner that are not pruned although this call does not apply them.",
			Type: List, Element: &Field{Type: Object, Fields: objectFields()},
		},
		Field{
			Name: "namespaces", Doc: "Namespaces to prune in addition to those of the objects.",
			Type: List, Element: &Field{Type: Text, Required: true},
		},
		Field{Name: "dry_run", Doc: "Store nothing: the API server answers what would happen. Such a call needs no passage.", Type: Flag},
	), touchesObjects)
	f.spec.EffectOf = func(args map[string]any) activity.Effect {
		if dry, _ := args["dry_run"].(bool); dry {
			return activity.Reads
		}
		return activity.Changes
	}
	f.spec.Check = checkObjects
	return f
}

// checkObjects refuses what the relay would refuse too, before it becomes part of the history.
func checkObjects(args map[string]any) (wrong []fault.Field) {
	objects, _ := args["objects"].([]any)
	if len(objects) == 0 || len(objects) > mostObjects {
		wrong = append(wrong, fault.Field{Name: "objects", Problem: fmt.Sprintf("found %d objects, expected 1 to %d", len(objects), mostObjects)})
	}
	for i, each := range objects {
		o, _ := each.(map[string]any)
		if text(o, "kind") == "Secret" {
			wrong = append(wrong, fault.Field{
				Name: fmt.Sprintf("objects[%d].kind", i), Problem: `found "Secret", whose values must not become part of a workflow's history`,
			})
		}
	}
	return wrong
}

// touchesObjects are the objects that a call of k8s.apply changes, and the namespaces that it prunes; none if one of them names no
// namespace. The relay reads arguments by the same rules.
func touchesObjects(args map[string]any) []activity.Place {
	agent, _ := whole(args["agent_id"])
	if text(args, "scope") == "cluster" {
		return []activity.Place{{Agent: agent}}
	}
	var touched []activity.Place
	add := func(p activity.Place) {
		touched = append(touched, p)
	}
	prune, _ := args["prune"].(bool)
	objects, _ := args["objects"].([]any)
	pruned := map[string]bool{}
	for _, each := range objects {
		o, _ := each.(map[string]any)
		metadata := object(o, "metadata")
		p := activity.Place{Agent: agent, Namespace: text(metadata, "namespace"), Name: text(metadata, "name")}
		switch {
		case text(o, "kind") == "Namespace" && text(o, "apiVersion") == "v1":
			p.Namespace, p.Name = p.Name, ""
		case p.Namespace == "":
			p.Namespace = text(args, "namespace")
		}
		if p.Namespace == "" {
			return nil
		}
		pruned[p.Namespace] = true
		add(p)
	}
	if !prune {
		return touched
	}
	for _, namespace := range append(list(args, "namespaces"), text(args, "namespace")) {
		if namespace != "" {
			pruned[namespace] = true
		}
	}
	// What is pruned has names that are not known here, so the whole namespace has to be open.
	for namespace := range pruned {
		add(activity.Place{Agent: agent, Namespace: namespace})
	}
	slices.SortFunc(touched[len(objects):], func(a, b activity.Place) int {
		if a.Namespace < b.Namespace {
			return -1
		}
		return 1
	})
	return touched
}

// touchesObject is the object of a call; a cluster-scoped one is part of the whole cluster.
func touchesObject(args map[string]any) []activity.Place {
	agent, _ := whole(args["agent_id"])
	if text(args, "namespace") == "" {
		return []activity.Place{{Agent: agent}}
	}
	return []activity.Place{{Agent: agent, Namespace: text(args, "namespace"), Name: text(args, "name")}}
}

// patchObject is k8s.patch.
func patchObject() *Function {
	return owned(onCluster("k8s.patch",
		"Merges a patch (JSON merge patch, RFC 7396) into an object that exists. Answers `{patched}`.\n\n"+ownership,
		append(append([]Field{environmentField()}, objectFields()...), Field{
			Name: "patch", Type: Free, Required: true,
			Doc: "The patch. It may change neither the status nor any metadata but labels and annotations, of these none that begin with `lockstep.dev/`.",
		})...), touchesObject)
}

// deleteObject is k8s.delete.
func deleteObject() *Function {
	return owned(onCluster("k8s.delete",
		"Deletes an object. Answers `{deleted}`, which is false if it did not exist. Namespaces are refused.\n\n"+ownership,
		append(append([]Field{environmentField()}, objectFields()...),
			Field{Name: "uid", Doc: "Delete the object only if it has this uid.", Type: Text},
			Field{
				Name: "propagation", Type: Text, OneOf: []string{"background", "foreground", "orphan"},
				Doc: "What happens to objects that it owns: they are deleted afterwards (`background`, the default), before it, or not.",
			})...), touchesObject)
}

// readLogs is k8s.logs.
func readLogs() *Function {
	return onCluster("k8s.logs",
		"Reads the end of the log of a container. Answers `{text, truncated}`: the text, and whether a part of the selected lines is missing at\n"+
			"its beginning. What looks like a secret (keys, tokens, passwords) is replaced by `[redacted]`. The relay has to allow\n"+
			"it (`allow_logs`), in the namespaces of `allow_destination_namespaces`. The text becomes part of the history.",
		Field{Name: "namespace", Doc: "The namespace of the pod.", Type: Text, Required: true},
		Field{Name: "pod", Doc: "The name of the pod.", Type: Text, Required: true},
		Field{Name: "container", Doc: "The container; required if the pod has several.", Type: Text},
		Field{Name: "lines", Doc: "The number of lines from the end, at most 5,000; 200 by default.", Type: Number, Least: 1},
		Field{Name: "max_bytes", Doc: "The maximum size of the text in bytes, at most 131,072; 32,768 by default.", Type: Number, Least: 1},
		Field{Name: "since_seconds", Doc: "Only what was written within so many seconds, at most 604,800.", Type: Number, Least: 1},
		Field{Name: "previous", Doc: "Read the log of the container before its latest restart.", Type: Flag})
}

// healthOfObjects is k8s.health.
func healthOfObjects() *Function {
	return onCluster("k8s.health",
		"Reads the states of objects by the rules of kstatus, which `kubectl wait` and Flux follow. Answers `{state, current, total, pending}`: `state`\n"+
			"is `Current` if all objects are, `Failed` if one has failed, and otherwise `InProgress`; `pending` are up to 20 objects that are not current,\n"+
			"with `state` and `reason`, first those that have failed.",
		Field{Name: "namespace", Doc: "The namespace of namespaced objects that name none.", Type: Text},
		Field{
			Name: "objects", Doc: "The objects, at most 2,000.", Type: List, Required: true,
			Element: &Field{Type: Object, Fields: objectFields()},
		})
}
