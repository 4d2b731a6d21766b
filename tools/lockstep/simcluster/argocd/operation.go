package argocd

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// operate advances an operation: it is started first, where a client can see it run, then carried out; the field that asked for it is
// cleared in the same write that reports its end.
func (c *Controller) operate(ctx context.Context, app apiserver.Object) error {
	state := app.Map("status", "operationState")
	if state == nil || (state.Text("phase") != "Running" && state.Text("phase") != "Terminating") {
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
	before := state
	state = state.Copy()
	c.carryOut(ctx, app, state)
	if ctx.Err() != nil && state.Text("phase") == "Error" {
		return fmt.Errorf("sync of %s: %w", app.Name(), ctx.Err())
	}
	if state.Text("phase") == "Running" {
		if reflect.DeepEqual(before, state) {
			return nil
		}
		return c.update(app, func(o apiserver.Object) { o.Set(map[string]any(state), "status", "operationState") })
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
	// An operation that a restarted process finds in progress continues with the revision of its result so far, which may be that of the
	// operation before.
	if found := state.Text("syncResult", "revision"); found != "" && !c.begun[app.Namespace()+"/"+app.Name()] {
		revision = found
	}
	if revision == "" {
		revision = app.Text("spec", "source", "targetRevision")
	}
	// The results may be those of the operation before: they stay, unless the client that started this one has removed them.
	results := state.List("syncResult", "resources")
	state.Set(map[string]any{"revision": revision, "source": copied(app, "spec", "source")}, "syncResult")
	if c.Store.Get(apiserver.Key{Resource: apiserver.AppProjects, Namespace: app.Namespace(), Name: app.Text("spec", "project")}) == nil {
		end("Error", "Failed to load application project: error getting app project %q: appprojects.argoproj.io %q not found",
			app.Text("spec", "project"), app.Text("spec", "project"))
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
	if tasks := tasksOf(wanted, results); multiStep(tasks) || state.Text("phase") == "Terminating" {
		c.carryOn(app, sync, state, tasks)
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

// carryOn takes a sync of several steps on, and leaves in the state how far it has come.
func (c *Controller) carryOn(app, sync, state apiserver.Object, tasks []*task) {
	var pruned []any
	phase, message := "Failed", "Operation terminated"
	if state.Text("phase") == "Terminating" {
		c.terminate(tasks)
	} else {
		c.createNamespaceOf(app, sync)
		if phase, message = c.step(tasks); phase == "Succeeded" {
			pruned, _ = c.prune(app, sync, tasks)
		}
	}
	state.Set(phase, "phase")
	state.Set(message, "message")
	state.Set(resultsOf(tasks, pruned), "syncResult", "resources")
}

// createNamespaceOf makes the namespace that an Application deploys to, where the sync is to.
func (c *Controller) createNamespaceOf(app, sync apiserver.Object) {
	if slices.Contains(sync.List("syncOptions"), any("CreateNamespace=true")) {
		c.createNamespace(app.Text("spec", "destination", "namespace"))
	}
}

// apply brings the cluster to what is wanted. The results are those of all objects, failed the first failure.
func (c *Controller) apply(app, sync apiserver.Object, wanted []desired) (results []any, failed string) {
	c.createNamespaceOf(app, sync)
	tasks := tasksOf(wanted, nil)
	for _, t := range tasks {
		if c.begin(t); t.status == "SyncFailed" && failed == "" {
			failed = t.message
		}
	}
	pruned, problem := c.prune(app, sync, tasks)
	return resultsOf(tasks, pruned), cmp.Or(failed, problem)
}

// prune deletes what the Application has and the commit has not, where the sync is to. failed is the first that could not be.
func (c *Controller) prune(app, sync apiserver.Object, tasks []*task) (results []any, failed string) {
	wanted := make([]desired, len(tasks))
	for i, t := range tasks {
		wanted[i] = t.desired
	}
	for _, k := range c.orphans(app, wanted) {
		status, state, message := "PruneSkipped", "Succeeded", "ignored (requires pruning)"
		if sync.Flag("prune") {
			status, message = "Pruned", "pruned"
			if _, err := c.Store.Delete(k, ""); err != nil && !apiserver.Is(err, "NotFound") {
				status, state, message = "SyncFailed", "Failed", err.Error()
				failed = cmp.Or(failed, message)
			}
		}
		results = append(results, map[string]any{
			"group": k.Resource.Group, "version": k.Resource.Version, "kind": k.Resource.Kind, "namespace": k.Namespace, "name": k.Name,
			"status": status, "hookPhase": state, "syncPhase": inSync, "message": message,
		})
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
	// It may exist already; anything else that is wrong shows with the first object in it.
	_, _ = c.Store.Create(apiserver.Namespaces, apiserver.Object{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name},
	})
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
