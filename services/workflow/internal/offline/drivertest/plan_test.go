package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// planned runs a plan, and returns what it lists of its one environment, one line for each thing.
func planned(t *testing.T, w *world, in object) (*event.Comparison, []string) {
	t.Helper()
	if failure := w.run(driver.Plan, in); failure != "" {
		t.Fatal(failure)
	}
	if len(w.previews) != 1 || len(w.previews[0].Environments) != 1 || w.previews[0].Environments[0].Compared == nil {
		t.Fatalf("found %+v, expected one comparison of one environment", w.previews)
	}
	c := w.previews[0].Environments[0].Compared
	w.previews = nil
	var all []string
	for _, thing := range c.Things {
		words := fmt.Sprint(thing.Kind, " ", thing.Action, " ", thing.Object, " ", thing.Detail)
		for _, h := range thing.Held {
			words = strings.TrimSpace(words) + fmt.Sprint(" held by ", h.Manager, ": ", h.Path)
		}
		all = append(all, strings.TrimSpace(words))
	}
	return c, all
}

// synced is an Application that Argo CD has synced to a commit.
func (w *world) syncedTo(revision string, source object) {
	w.objects["Application argocd/shop-staging"] = object{
		"spec": object{"source": source}, "status": object{"operationState": object{"phase": "Succeeded", "syncResult": object{"revision": revision}}},
	}
}

// R4-19: argo-rollouts@1 lists what differs between the commit that runs and the files that a deploy would write, and changes nothing.
func TestThePlanOfArgoRollouts(t *testing.T) {
	t.Parallel()
	between := object{"workloads": 1, "things": []any{object{
		"kind": "replicas", "action": "changed", "object": "Rollout/api", "detail": "2 → 4",
	}}, "unread": []any{}, "more": false}
	for name, c := range map[string]struct {
		version int
		prepare func(w *world)
		edit    func(in, environment object)
		want    []string
		reason  string
	}{
		"new images": {2, func(w *world) { w.syncedTo(w.head, object{}) }, nil, []string{
			"image changed Rollout/api " + image("api", 1) + " → " + image("api", 2),
			"image changed Rollout/worker " + image("worker", 1) + " → " + image("worker", 2),
			"other changed Rollout/api", "other changed Rollout/worker",
		}, ""},
		"commits since": {1, func(w *world) { w.syncedTo(sha("older"), object{}) }, nil, []string{
			"other changed Rollout/api", "other changed Rollout/worker", "replicas changed Rollout/api 2 → 4",
		}, ""},
		"what is rendered": {1, func(w *world) {
			w.syncedTo(sha("older"), object{})
			between := maps.Clone(between)
			between["unread"] = []any{"staging/patch.yaml"}
			w.difference = between
		}, nil, nil, "what changes in staging/patch.yaml is known once it is rendered"},
		"too many files": {1, func(w *world) {
			w.syncedTo(sha("older"), object{})
			between := maps.Clone(between)
			between["more"] = true
			w.difference = between
		}, nil, nil, "too many files have changed since " + sha("older")},
		"too many things": {1, func(w *world) {
			w.syncedTo(sha("older"), object{})
			between := maps.Clone(between)
			var all []any
			for i := range 99 {
				all = append(all, object{"kind": "other", "action": "added", "object": fmt.Sprint("Service/s", i)})
			}
			between["things"] = all
			w.difference = between
		}, nil, nil, "more than 100 things differ"},
		"no Application": {2, func(*world) {}, nil, nil, "Application argocd/shop-staging does not exist"},
		"never synced": {2, func(w *world) {
			w.objects["Application argocd/shop-staging"] = object{"spec": object{}}
		}, nil, nil, "the last sync of Application argocd/shop-staging has not succeeded"},
		"no answer of the cluster": {2, func(w *world) {
			w.fail = failing("k8s.get", history.CodeTimeout, "agent 42 did not answer")
		}, nil, nil, "Application argocd/shop-staging: agent 42 did not answer"},
		"no file": {2, func(w *world) {
			w.syncedTo(w.head, object{})
			delete(w.files, "staging/api.yaml")
		}, nil, nil, `read staging/api.yaml: no file "staging/api.yaml" at "main"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := shop(t)
			w.difference = between
			c.prepare(w)
			before := w.head
			found, things := planned(t, w, previews(c.version, c.edit))
			if diff := cmp.Diff(c.want, things); diff != "" || found.Reason != c.reason {
				t.Errorf("reason %q, want %q; things (-want +got):\n%s", found.Reason, c.reason, diff)
			}
			if w.head != before || len(w.story) > 1 {
				t.Errorf("it has changed something: %v", w.story)
			}
		})
	}
}

// The versions of an Application that Argo CD renders with parameters are compared with its parameters.
func TestThePlanOfParameters(t *testing.T) {
	t.Parallel()
	w, edit := kustomized(t)
	w.syncedTo(w.head, object{"kustomize": object{"images": []any{"api=" + image("api", 1), "worker=" + image("worker", 1)}, "patches": []any{}}})
	found, things := planned(t, w, previews(2, func(in, environment object) {
		edit(in, environment)
		configOf(environment)["version_setting"] = "parameters"
		environment["gates"] = []any{}
	}))
	if diff := cmp.Diff([]string{"pod_template changed Application/shop-staging its parameters"}, things); diff != "" || found.Reason != "" {
		t.Errorf("reason %q, things (-want +got):\n%s", found.Reason, diff)
	}
}

// services are new ones, as a dry run names them.
func services(number int) []any {
	all := make([]any, number)
	for i := range all {
		all[i] = object{"kind": "Service", "name": fmt.Sprint("s", i), "action": "created"}
	}
	return all
}

// R4-19: kubernetes@1 lists what a dry run says, and what the manifests no longer have.
func TestThePlanOfKubernetes(t *testing.T) {
	t.Parallel()
	fields := func(more bool, all ...any) object {
		return object{"kind": "Deployment", "name": "api", "action": "configured", "fields": append([]any{}, all...), "more_fields": more}
	}
	field := func(path, before, after string) any { return object{"path": path, "before": before, "after": after} }
	for name, c := range map[string]struct {
		changed []any
		lost    object
		fail    func(string, object) *history.FunctionError
		want    []string
		reason  string
	}{
		"nothing": {},
		"replicas": {
			changed: []any{fields(false, field("spec.replicas", "2", "4"))}, want: []string{"replicas changed Deployment/api 2 → 4"},
		},
		"an image": {
			changed: []any{fields(false, field("spec.template.spec.containers[api].image", "a:1", "a:2"))},
			want:    []string{"image changed Deployment/api a:1 → a:2"},
		},
		"a variable": {
			changed: []any{fields(false, object{"path": "spec.template.spec.containers[api].env[A].value"})},
			want:    []string{"pod_template changed Deployment/api"},
		},
		"more than is named":   {changed: []any{fields(true, field("spec.replicas", "2", "4"))}, want: []string{"pod_template changed Deployment/api"}},
		"a relay of before":    {changed: []any{object{"kind": "Deployment", "name": "api", "action": "configured"}}, want: []string{"pod_template changed Deployment/api"}},
		"a label":              {changed: []any{fields(false, object{"path": "metadata.labels.team"})}, want: []string{"other changed Deployment/api"}},
		"a new object":         {changed: []any{object{"kind": "CronJob", "name": "worker", "action": "created"}}, want: []string{"pod_template added CronJob/worker"}},
		"a config map":         {changed: []any{object{"kind": "ConfigMap", "name": "settings", "action": "configured", "fields": []any{object{"path": "data.a"}}}}, want: []string{"config_map changed ConfigMap/settings"}},
		"no field of it":       {changed: []any{fields(false), object{"kind": "ConfigMap", "name": "settings", "action": "configured", "fields": []any{}}}},
		"a config map is lost": {lost: object{"ConfigMap": "old"}, want: []string{"config_map removed ConfigMap/old"}},
		"one asks to be kept":  {lost: object{"ConfigMap": object{"name": "old", "annotations": object{"lockstep.dev/prune": "false"}}}},
		"Helm keeps one":       {lost: object{"ConfigMap": object{"name": "old", "annotations": object{"helm.sh/resource-policy": "keep"}}}},
		"one is being deleted": {lost: object{"Pod": object{"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"}}},
		"one of a controller":  {lost: object{"Pod": object{"name": "old", "ownerReferences": []any{object{"kind": "ReplicaSet"}}}}},
		"one of another installation": {lost: object{
			"ConfigMap":  object{"name": "old", "labels": object{"lockstep.dev/installation": "b"}},
			"Deployment": object{"name": "api", "labels": object{"lockstep.dev/installation": "a"}},
		}},
		"a workload is lost": {lost: object{"StatefulSet": "db"}, want: []string{"pod_template removed StatefulSet/db"}},
		"no dry run":         {fail: failing("k8s.apply", "conflict", "another manager"), reason: "another manager"},
		"a job is lost":      {lost: object{"Job": "import"}, want: []string{"pod_template removed Job/import"}},
		"a Rollout is lost":  {lost: object{"Rollout": "web"}, want: []string{"pod_template removed Rollout/web"}},
		"too many things":    {changed: services(110), lost: object{"ConfigMap": "old"}, reason: "more than 100 things differ"},
		"lists are refused": {
			fail:   failing("k8s.list", "forbidden", "not allowed"),
			reason: "which objects of the kind ConfigMap would be pruned is unknown: not allowed",
		},
		"lists of others are refused": {
			lost: object{"Deployment": "old"},
			fail: func(function string, args object) *history.FunctionError {
				if kind, _ := args["kind"].(string); slices.Contains([]string{"ConfigMap", "Deployment", "CronJob"}, kind) {
					return nil
				}
				return failing("k8s.list", "forbidden", "the cluster does not let the relay list it")(function, args)
			},
			want: []string{"pod_template removed Deployment/old"},
		},
		"lists of others are denied by a policy": {
			fail: func(function string, args object) *history.FunctionError {
				if args["kind"] != "StatefulSet" {
					return nil
				}
				return failing("k8s.list", "forbidden", "denied")(function, args)
			},
			reason: "which objects of the kind StatefulSet would be pruned is unknown: denied",
		},
		"lists fail": {
			fail:   failing("k8s.list", history.CodeTimeout, "no answer"),
			reason: "which objects of the kind ConfigMap would be pruned is unknown: no answer",
		},
		"no Argo Rollouts": {fail: func(function string, args object) *history.FunctionError {
			if args["kind"] != "Rollout" {
				return nil
			}
			return failing("k8s.list", "unknown_kind", "the kind is unknown")(function, args)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := plainShop(t)
			w.plain.dry, w.plain.lost = c.changed, c.lost
			if w.plain.dry == nil {
				w.plain.dry = []any{}
			}
			if c.fail != nil {
				w.fail = c.fail
			}
			in := plainInputs(nil)
			in["preview"] = object{"id": 5}
			delete(in, "pipeline")
			found, things := planned(t, w, in)
			if diff := cmp.Diff(c.want, things); diff != "" || found.Reason != c.reason || c.reason == "" && found.Workloads != 2 {
				t.Errorf("%d workloads, reason %q, want %q; things (-want +got):\n%s", found.Workloads, found.Reason, c.reason, diff)
			}
			if len(w.plain.calls) > 0 {
				t.Errorf("it has applied %v", w.plain.calls)
			}
		})
	}
}

// R4-11: kubernetes@1 looks for drift with what was deployed, and not with what people have committed since; fields and objects whose
// annotation says so do not count, and fields that others have taken over do.
func TestTheDriftOfKubernetes(t *testing.T) {
	t.Parallel()
	replicas := object{"kind": "Deployment", "name": "api", "action": "configured", "more_fields": false, "fields": []any{
		object{"path": "spec.replicas", "before": "9", "after": "2"},
	}}
	taken := failing("k8s.apply", "conflict", `Deployment shop/api: fields are managed by others: .spec.replicas (conflict with "ann" using apps/v1); leave them out`)
	takenImage := failing("k8s.apply", "conflict", `Deployment shop/api: fields are managed by others: .spec.template.spec.containers[name="api"].image (conflict with "ann" using apps/v1) and 2 more; leave them out`)
	for name, c := range map[string]struct {
		ignore string
		fail   func(string, object) *history.FunctionError
		want   []string
	}{
		"scaled by hand":         {want: []string{"replicas changed Deployment/api 9 → 2"}},
		"scaled by something":    {ignore: "metadata.labels, spec.replicas"},
		"below what is ignored":  {ignore: "spec"},
		"another field":          {ignore: "spec.replica", want: []string{"replicas changed Deployment/api 9 → 2"}},
		"all of it":              {ignore: "*"},
		"taken over":             {fail: taken, want: []string{"pod_template changed Deployment/api others manage spec.replicas held by ann: spec.replicas"}},
		"taken over and ignored": {fail: taken, ignore: "spec.replicas"},
		"an image taken over": {fail: takenImage, want: []string{
			"pod_template changed Deployment/api others manage spec.template.spec.containers[api].image held by ann: spec.template.spec.containers[api].image",
		}},
		"an image taken over and ignored": {fail: takenImage, ignore: "spec.template.spec.containers[api].image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := plainShop(t)
			w.plain.dry = []any{replicas}
			if c.fail != nil {
				w.plain.dry = []any{} // of the other objects
			}
			var refs []any
			w.fail = func(function string, args object) *history.FunctionError {
				if function == "git.read_file" {
					refs = append(refs, args["ref"])
				}
				objects, _ := args["objects"].([]any)
				if c.fail == nil || function == "k8s.apply" && len(objects) == 1 && !strings.Contains(fmt.Sprint(objects[0]), "kind:Deployment") {
					return nil
				}
				return c.fail(function, args)
			}
			if c.ignore != "" {
				for path, text := range w.files {
					w.files[path] = strings.ReplaceAll(text, "metadata: {name: api, ", "metadata: {annotations: {lockstep.dev/ignore-drift: \""+c.ignore+"\"}, name: api, ")
				}
			}
			in := plainInputs(nil)
			in["preview"] = object{"id": 5}
			delete(in, "pipeline")
			in["rollout"].(object)["environments"].([]any)[0].(object)["compared_commit"] = sha("older")
			found, things := planned(t, w, in)
			if diff := cmp.Diff(c.want, things); diff != "" || found.Reason != "" {
				t.Errorf("reason %q; things (-want +got):\n%s", found.Reason, diff)
			}
			for _, thing := range found.Things {
				if thing.Namespace != "shop" { // however it was found (R4-11)
					t.Errorf("%s is in namespace %q", thing.Object, thing.Namespace)
				}
			}
			for _, ref := range refs {
				if ref != sha("older") {
					t.Errorf("read at %v, expected the commit that was deployed", ref)
				}
			}
		})
	}
}

// R4-11: where all that others have taken over of an object is ignored, what else differs in it counts.
func TestWhatElseDiffersThanWhatIsIgnored(t *testing.T) {
	t.Parallel()
	w := plainShop(t)
	for path, text := range w.files {
		w.files[path] = strings.ReplaceAll(strings.ReplaceAll(
			text, "metadata: {name: api, ", "metadata: {annotations: {lockstep.dev/ignore-drift: spec.replicas}, name: api, "),
			"spec:\n  template:", "spec:\n  replicas: 2\n  template:")
	}
	w.fail = func(function string, args object) *history.FunctionError {
		objects, _ := args["objects"].([]any)
		w.plain.dry = []any{}
		if function != "k8s.apply" || !strings.Contains(fmt.Sprint(objects...), "kind:Deployment") {
			return nil
		}
		if len(objects) > 1 || strings.Contains(fmt.Sprint(objects...), "replicas:") {
			return failing("k8s.apply", "conflict",
				`Deployment shop/api: fields are managed by others: .spec.replicas (conflict with "hpa" using autoscaling/v2); leave them out`)(function, args)
		}
		w.plain.dry = []any{object{"kind": "Deployment", "name": "api", "action": "configured", "more_fields": false, "fields": []any{
			object{"path": "spec.template.spec.containers[api].image", "before": "a:9", "after": "a:1"},
		}}}
		return nil
	}
	in := plainInputs(nil)
	in["preview"] = object{"id": 5}
	delete(in, "pipeline")
	in["rollout"].(object)["environments"].([]any)[0].(object)["compared_commit"] = sha("older")
	found, things := planned(t, w, in)
	if diff := cmp.Diff([]string{"image changed Deployment/api a:9 → a:1"}, things); diff != "" || found.Reason != "" {
		t.Errorf("reason %q; things (-want +got):\n%s", found.Reason, diff)
	}
}

// R4-19: git@1 lists the images that it would write, and nothing else.
func TestThePlanOfFiles(t *testing.T) {
	t.Parallel()
	w := gitShop(t)
	in := gitInputs(nil)
	delete(in, "pipeline")
	in["preview"] = object{"id": 5}
	found, things := planned(t, w, in)
	if len(things) != 2 || !strings.HasPrefix(things[0], "image changed ") || !strings.Contains(things[0], image("api", 2)) || found.Workloads != 2 {
		t.Errorf("found %+v", found)
	}
	w.fail = failing("git.read_file", "unauthorized", "the credentials are refused")
	if found, _ := planned(t, w, in); !strings.Contains(found.Reason, "the credentials are refused") {
		t.Errorf("found %+v, want the reason", found)
	}
}

// R4-19: a quick sync that a comparison has allowed deploys what was compared. Where the branch has moved since to what needs the weights,
// nothing is deployed.
func TestWhatWasComparedIsDeployed(t *testing.T) {
	t.Parallel()
	compared := func(_, environment object) {
		environment["gates"], environment["compared_commit"] = []any{}, sha("older")
	}
	for kind, reason := range map[string]string{"replicas": "", "config_map": "config map ConfigMap/x is changed; begin another rollout"} {
		w := shop(t)
		w.difference = object{"workloads": 1, "unread": []any{}, "more": false, "things": []any{
			object{"kind": kind, "action": "changed", "object": "ConfigMap/x"},
		}}
		_ = w.run(driver.Deploy, inputs(1, compared))
		if story := strings.Join(w.story, "\n"); !strings.Contains(story, reason) || strings.Contains(story, "rollout.healthy") != (reason == "") {
			t.Errorf("argo-rollouts, %s: found\n%s\nwant %q", kind, story, reason)
		}
	}
	w := plainShop(t)
	var ref any
	w.fail = func(name string, args object) *history.FunctionError {
		if name == "git.read_file" {
			ref = args["ref"]
		}
		return nil
	}
	in := plainInputs(nil)
	in["rollout"].(object)["environments"].([]any)[0].(object)["compared_commit"] = sha("older")
	if failure := w.run(driver.Deploy, in); failure != "" || ref != sha("older") {
		t.Errorf("kubernetes: %q, read at %v", failure, ref)
	}
	// The tag of a chart may move as well: its digest is compared, and then applied.
	digest := "sha256:" + strings.Repeat("c", 64)
	charted := func(c object) {
		delete(c, "files")
		delete(c, "repository_url")
		c["helm"] = object{"chart": "oci://ghcr.io/shop/charts/api", "version": "1.2.0"}
	}
	p := plainShop(t)
	in = plainInputs(charted)
	in["rollout"].(object)["environments"].([]any)[0].(object)["compared_commit"] = "@" + digest
	failure := p.run(driver.Deploy, in)
	if story := strings.Join(p.story, "\n"); failure != "" || !strings.Contains(story, "chart oci://ghcr.io/shop/charts/api "+digest) {
		t.Errorf("a chart: %q in\n%s", failure, story)
	}
	in = plainInputs(charted)
	in["preview"] = object{"id": 5}
	if found, _ := planned(t, plainShop(t), in); found.Commit != "@"+digest {
		t.Errorf("a chart was compared as %q, expected its digest", found.Commit)
	}
	g := gitShop(t)
	_ = g.run(driver.Deploy, gitInputs(func(_, environment object) { environment["compared_commit"] = sha("older") }))
	if story := strings.Join(g.story, "\n"); !strings.Contains(story, "found no new image; begin another rollout") {
		t.Errorf("git: found\n%s", story)
	}
}
