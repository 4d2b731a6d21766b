package argocd

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// operate carries an operation on: first it is taken up, where a client can see it run, then carried out, and the field
// that asked for it is cleared in the same write that tells its end.
func (c *Controller) operate(ctx context.Context, app apiserver.Object) error {
	state := app.Map("status", "operationState")
	if state == nil || state.Text("phase") != "Running" {
		c.begun[app.Namespace()+"/"+app.Name()] = true
		return c.update(app, func(o apiserver.Object) {
			running := map[string]any{"phase": "Running", "operation": copied(o, "operation"), "startedAt": c.stamp()}
			// As with the merge patch that the real one writes, the result of the operation before stays until there is another.
			if before := copied(o, "status", "operationState", "syncResult"); before != nil {
				running["syncResult"] = before
			}
			o.Set(running, "status", "operationState")
		})
	}
	if c.repositoriesRest() {
		return nil // it waits for the manifests
	}
	state = state.Copy()
	c.carryOut(ctx, app, state)
	if ctx.Err() != nil && state.Text("phase") == "Error" {
		return fmt.Errorf("sync of %s: %w", app.Name(), ctx.Err())
	}
	state.Set(c.stamp(), "finishedAt")
	return c.update(app, func(o apiserver.Object) {
		delete(o, "operation")
		o.Set(map[string]any(state), "status", "operationState")
		c.record(o, state)
	})
}

// update changes the Application that was looked at, and no later one.
func (c *Controller) update(app apiserver.Object, change func(apiserver.Object)) error {
	o := app.Copy()
	change(o)
	_, err := c.Store.Update(apiserver.Applications, o, apiserver.Whole)
	return err
}

// carryOut syncs, and leaves phase, message and result in the state.
func (c *Controller) carryOut(ctx context.Context, app, state apiserver.Object) {
	end := func(phase, format string, args ...any) {
		state.Set(phase, "phase")
		state.Set(fmt.Sprintf(format, args...), "message")
	}
	sync := state.Map("operation", "sync")
	if sync == nil {
		end("Error", "Invalid operation request: no operation specified")
		return
	}
	revision := sync.Text("revision")
	// An operation that a process finds under way goes on with the revision of its result so far, which may be that of the
	// operation before.
	if found := state.Text("syncResult", "revision"); found != "" && !c.begun[app.Namespace()+"/"+app.Name()] {
		revision = found
	}
	if revision == "" {
		revision = app.Text("spec", "source", "targetRevision")
	}
	state.Set(map[string]any{"revision": revision, "source": copied(app, "spec", "source")}, "syncResult")
	if c.Store.Get(apiserver.Key{Resource: apiserver.AppProjects, Namespace: app.Namespace(), Name: app.Text("spec", "project")}) == nil {
		end("Error", "Failed to load application project: error getting app project %q: appprojects.argoproj.io %q not found", app.Text("spec", "project"), app.Text("spec", "project"))
		return
	}
	commit, err := c.repositories.resolve(ctx, app.Text("spec", "source", "repoURL"), revision)
	var wanted []desired
	if err == nil {
		state.Set(commit.Hash.String(), "syncResult", "revision")
		wanted, err = want(app, commit)
	}
	if err != nil {
		end("Error", "ComparisonError: Failed to load target state: failed to generate manifest for source 1 of 1: %v", err)
		return
	}
	if sync.Flag("dryRun") {
		end("Succeeded", "successfully synced (dry run)")
		return
	}
	results, failed := c.apply(app, sync, wanted)
	state.Set(results, "syncResult", "resources")
	if failed != "" {
		end("Failed", "one or more objects failed to apply, reason: %s", failed)
		return
	}
	end("Succeeded", "successfully synced (all tasks run)")
}

// apply brings the cluster to what is wanted. The results are those of all objects, failed the first failure.
func (c *Controller) apply(app, sync apiserver.Object, wanted []desired) (results []any, failed string) {
	if slices.Contains(sync.List("syncOptions"), any("CreateNamespace=true")) {
		c.createNamespace(app.Text("spec", "destination", "namespace"))
	}
	tell := func(k apiserver.Key, status, phase, message string) {
		results = append(results, map[string]any{
			"group": k.Resource.Group, "version": k.Resource.Version, "kind": k.Resource.Kind, "namespace": k.Namespace, "name": k.Name,
			"status": status, "hookPhase": phase, "syncPhase": "Sync", "message": message,
		})
		if status == "SyncFailed" && failed == "" {
			failed = message
		}
	}
	for _, d := range slices.SortedStableFunc(slices.Values(wanted), inOrder) {
		message, err := c.put(d)
		if err != nil {
			tell(d.key, "SyncFailed", "Failed", err.Error())
			continue
		}
		tell(d.key, "Synced", "Running", message)
	}
	for _, k := range c.orphans(app, wanted) {
		if !sync.Flag("prune") {
			tell(k, "PruneSkipped", "Succeeded", "ignored (requires pruning)")
			continue
		}
		if _, err := c.Store.Delete(k, ""); err != nil && !apiserver.Is(err, "NotFound") {
			tell(k, "SyncFailed", "Failed", err.Error())
			continue
		}
		tell(k, "Pruned", "Succeeded", "pruned")
	}
	return results, failed
}

// first are the kinds that Argo CD applies before others, in its order (its sync_tasks.go), as far as the cluster has them: a
// Rollout finds the Service that it names. Kinds that are not listed come after them.
//
//nolint:gochecknoglobals // a constant of a slice type
var first = []string{
	"Namespace", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "Secret", "ConfigMap", "PersistentVolumeClaim", "Role",
	"RoleBinding", "Service", "DaemonSet", "Pod", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet", "Job", "CronJob",
	"Ingress",
}

// inOrder compares objects by when Argo CD applies them.
func inOrder(a, b desired) int {
	rank := func(d desired) int {
		if i := slices.Index(first, d.key.Resource.Kind); i >= 0 {
			return i
		}
		return len(first)
	}
	return rank(a) - rank(b)
}

// put applies one object.
func (c *Controller) put(d desired) (string, error) {
	name := fmt.Sprintf("%s.%s/%s", d.key.Resource.Plural, d.key.Resource.Group, d.key.Name)
	if d.unknown != "" {
		return "", fmt.Errorf("%s", d.unknown)
	}
	if c.Store.Get(d.key) == nil {
		_, err := c.Store.Create(d.key.Resource, d.object)
		return name + " created", err
	}
	changed := false
	_, err := c.Store.Modify(d.key, apiserver.Whole, func(live apiserver.Object) (apiserver.Object, error) {
		next := applied(live, d.object)
		changed = fmt.Sprint(next) != fmt.Sprint(live)
		return next, nil
	})
	if !changed {
		return name + " unchanged", err
	}
	return name + " configured", err
}

func (c *Controller) createNamespace(name string) {
	// It may be there already; whatever else is wrong with it, the first object in it will tell.
	_, _ = c.Store.Create(apiserver.Namespaces, apiserver.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
}

// maxHistory is how many syncs an Application remembers.
const maxHistory = 10

// record writes a sync that has succeeded into the history.
func (c *Controller) record(o, state apiserver.Object) {
	if state.Text("phase") != "Succeeded" || state.Flag("operation", "sync", "dryRun") {
		return
	}
	history := o.List("status", "history")
	next := int64(0)
	if n := len(history); n > 0 {
		if last, ok := history[n-1].(map[string]any); ok {
			id, _ := last["id"].(int64)
			next = id + 1
		}
	}
	entry := map[string]any{
		"id": next, "revision": state.Text("syncResult", "revision"), "source": copied(state, "syncResult", "source"),
		"deployStartedAt": state.Text("startedAt"), "deployedAt": state.Text("finishedAt"),
	}
	if by := copied(state, "operation", "initiatedBy"); by != nil {
		entry["initiatedBy"] = by
	}
	history = append(slices.Clone(history), any(entry))
	o.Set(history[max(0, len(history)-maxHistory):], "status", "history")
}
