package argocd

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// trackingID marks an object as an Application's.
const trackingID = "argocd.argoproj.io/tracking-id"

// desired is one object as an Application wants it.
type desired struct {
	key    apiserver.Key
	object apiserver.Object
	// unknown is why the cluster cannot have it; "" if it can.
	unknown string
}

// want are the objects of a commit as the Application wants them.
func want(app apiserver.Object, commit *object.Commit) ([]desired, error) {
	objects, err := rendered(app, commit)
	if err != nil {
		return nil, err
	}
	all := make([]desired, 0, len(objects))
	for _, o := range objects {
		d := desired{object: o}
		r, ok := apiserver.ByKind(o.Text("apiVersion"), o.Text("kind"))
		if !ok {
			d.unknown = fmt.Sprintf("The Kubernetes API could not find %s/%s for requested resource %s/%s. Make sure the %q CRD is installed on the destination cluster.",
				o.Text("apiVersion"), o.Text("kind"), o.Namespace(), o.Name(), o.Text("kind"))
			r.Kind = o.Text("kind")
		}
		if r.Namespaced && o.Namespace() == "" {
			o.Set(app.Text("spec", "destination", "namespace"), "metadata", "namespace")
		}
		o.Set(fmt.Sprintf("%s:%s/%s:%s/%s", app.Name(), r.Group, r.Kind, o.Namespace(), o.Name()), "metadata", "annotations", trackingID)
		d.key = apiserver.Key{Resource: r, Namespace: o.Namespace(), Name: o.Name()}
		all = append(all, d)
	}
	return all, nil
}

// applied is the live object after kubectl apply: what the manifest says wins, what only the cluster says stays.
func applied(live, o apiserver.Object) apiserver.Object {
	if live == nil {
		return o.Copy()
	}
	result := live.Copy()
	for name, value := range o.Copy() {
		if name != "metadata" && name != "status" {
			result[name] = value
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		for name, value := range o.Map("metadata", field) {
			result.Set(value, "metadata", field, name)
		}
	}
	return result
}

// orphans are the objects that the Application has and the commit has not.
func (c *Controller) orphans(app apiserver.Object, wanted []desired) []apiserver.Key {
	var found []apiserver.Key
	for _, r := range apiserver.Resources() {
		all, _ := c.Store.List(r, "")
		for _, o := range all {
			k := apiserver.Key{Resource: r, Namespace: o.Namespace(), Name: o.Name()}
			owner, _, _ := strings.Cut(o.Text("metadata", "annotations", trackingID), ":")
			if owner == app.Name() && !isHook(o) && r != apiserver.Applications &&
				!slices.ContainsFunc(wanted, func(d desired) bool { return d.key == k }) {
				found = append(found, k)
			}
		}
	}
	return found
}

// judge writes the comparison with a commit into the status.
func (c *Controller) judge(o apiserver.Object, commit *object.Commit) {
	wanted, err := want(o, commit)
	if err != nil {
		c.unknown(o, err)
		return
	}
	wanted = withoutHooks(wanted)
	o.Unset("status", "conditions")
	synced, health := true, "Healthy"
	resources := []any{}
	for _, d := range wanted {
		var live apiserver.Object
		if d.unknown == "" {
			live = c.Store.Get(d.key)
		}
		resource := map[string]any{
			"group": d.key.Resource.Group, "version": d.key.Resource.Version, "kind": d.key.Resource.Kind,
			"namespace": d.key.Namespace, "name": d.key.Name, "status": "Synced",
		}
		if live == nil || !reflect.DeepEqual(live, applied(live, d.object)) {
			resource["status"], synced = "OutOfSync", false
		}
		// Since version 3, Argo CD keeps the health of single resources to itself (resourceHealthSource).
		health = worse(health, healthOf(d.key.Resource, live))
		resources = append(resources, resource)
	}
	for _, k := range c.orphans(o, wanted) {
		synced = false
		resources = append(resources, map[string]any{
			"group": k.Resource.Group, "version": k.Resource.Version, "kind": k.Resource.Kind,
			"namespace": k.Namespace, "name": k.Name, "status": "OutOfSync", "requiresPruning": true,
		})
	}
	o.Set(map[string]any{
		"status": map[bool]string{true: "Synced", false: "OutOfSync"}[synced], "revision": commit.Hash.String(),
		"comparedTo": map[string]any{"source": copied(o, "spec", "source"), "destination": copied(o, "spec", "destination")},
	}, "status", "sync")
	o.Set(health, "status", "health", "status")
	o.Set(resources, "status", "resources")
	o.Set(sourceType(o, commit), "status", "sourceType")
	o.Set("appTree", "status", "resourceHealthSource")
	o.Set("argocd", "status", "controllerNamespace")
	c.automate(o, synced)
}

// automate asks for a sync when the Application is to sync by itself. Argo CD does so once for each revision.
func (c *Controller) automate(o apiserver.Object, synced bool) {
	policy := o.Map("spec", "syncPolicy", "automated")
	if enabled, set := policy["enabled"].(bool); policy == nil || synced || set && !enabled {
		return
	}
	revision := o.Text("status", "sync", "revision")
	if o.Text("status", "operationState", "operation", "sync", "revision") == revision && !policy.Flag("selfHeal") {
		return
	}
	o.Set(map[string]any{
		"initiatedBy": map[string]any{"automated": true},
		"sync":        map[string]any{"revision": revision, "prune": policy.Flag("prune")},
	}, "operation")
}

// healthOf is an object's health as Argo CD sees it; kinds that have none are healthy.
func healthOf(r apiserver.Resource, live apiserver.Object) string {
	if r != apiserver.Rollouts && r != apiserver.Deployments && r != apiserver.StatefulSets {
		return "Healthy"
	}
	if live == nil {
		return "Missing"
	}
	if r == apiserver.StatefulSets {
		return "Progressing" // nothing runs them here
	}
	generation, _ := live.Number("metadata", "generation")
	if r == apiserver.Deployments {
		return healthOfDeployment(live, generation)
	}
	if live.Text("status", "observedGeneration") != strconv.FormatInt(generation, 10) {
		return "Progressing"
	}
	switch phase := live.Text("status", "phase"); phase {
	case "Paused":
		return "Suspended"
	case "Degraded", "Healthy":
		return phase
	default:
		return "Progressing"
	}
}

// healthOfDeployment is that of a Deployment of a generation.
func healthOfDeployment(live apiserver.Object, generation int64) string {
	if observed, _ := live.Number("status", "observedGeneration"); observed != generation {
		return "Progressing"
	}
	for _, one := range live.List("status", "conditions") {
		if c, _ := one.(map[string]any); c["reason"] == "ProgressDeadlineExceeded" {
			return "Degraded"
		}
	}
	replicas, given := live.Number("spec", "replicas")
	if !given {
		replicas = 1
	}
	if available, _ := live.Number("status", "availableReplicas"); available < replicas {
		return "Progressing"
	}
	return "Healthy"
}

func worse(a, b string) string {
	order := []string{"Healthy", "Suspended", "Progressing", "Missing", "Degraded", "Unknown"}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// copied is a copy of the object at a path, as a plain value.
func copied(o apiserver.Object, path ...string) any {
	if m := o.Map(path...); m != nil {
		return map[string]any(m.Copy())
	}
	return nil
}
