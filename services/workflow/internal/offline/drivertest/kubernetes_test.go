package drivertest

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// plainCluster takes objects, and has them become ready, or fail, some time after they were applied.
type plainCluster struct {
	calls   []object
	objects map[string]object
	applied time.Time
	takes   time.Duration
	state   string
	refuses string
	// dry is what a dry run answers as changed, unless it is nil, and lost the names of further objects of the owner, by kind.
	dry  []any
	lost object
	// pruned are the members of the answer about what an apply has pruned; nil for none.
	pruned object
	looks  []time.Time
}

func (c *plainCluster) call(w *world, name string, args object) (any, *history.FunctionError, bool) {
	switch name {
	case "k8s.apply":
		if c.refuses != "" {
			return nil, &history.FunctionError{Code: "conflict", Message: c.refuses}, true
		}
		changed := []any{}
		for _, each := range args["objects"].([]any) {
			o := each.(object)
			id := fmt.Sprint(o["kind"], "/", o["metadata"].(object)["name"])
			if fmt.Sprint(c.objects[id]) != fmt.Sprint(o) {
				changed = append(changed, object{"kind": o["kind"], "name": o["metadata"].(object)["name"], "action": "configured"})
			}
			if dry, _ := args["dry_run"].(bool); !dry {
				c.objects[id] = o
			}
		}
		if dry, _ := args["dry_run"].(bool); dry && c.dry != nil {
			changed = c.dry
		}
		if dry, _ := args["dry_run"].(bool); !dry {
			c.calls, c.applied = append(c.calls, args), w.now
			w.record("apply: %d objects, keeps %d, prune %v", len(args["objects"].([]any)), len(args["keep"].([]any)), args["prune"])
		}
		answer := object{
			"created": 0, "configured": len(changed), "unchanged": 0, "changed": changed, "pruned": []any{}, "owner": "o1.e3.a1",
			"digest": "sha256:" + strings.Repeat("a", 64),
		}
		maps.Copy(answer, c.pruned)
		return answer, nil, true
	case "k8s.list":
		items := []any{}
		if lost := c.lost[args["kind"].(string)]; lost != nil && args["labels"] == "lockstep.dev/owner=o1.e3.a1" {
			metadata, given := lost.(object)
			if !given {
				metadata = object{"name": lost}
			}
			metadata["namespace"] = "shop"
			items = append(items, object{"metadata": metadata})
		}
		return object{"items": items, "truncated": false}, nil, true
	case "k8s.health":
		c.looks = append(c.looks, w.now)
		all := len(args["objects"].([]any))
		if w.now.Sub(c.applied) >= c.takes {
			pending := []any{}
			if c.state != "Current" {
				pending = append(pending, object{"kind": "Deployment", "name": "api", "state": c.state, "reason": "exceeded its progress deadline"})
			}
			return object{"state": c.state, "current": all, "total": all, "pending": pending}, nil, true
		}
		return object{"state": "InProgress", "current": 0, "total": all, "pending": []any{
			object{"kind": "Deployment", "name": "api", "state": "InProgress", "reason": "Available: 0/1"},
		}}, nil, true
	default:
		return nil, nil, false
	}
}

const plainManifests = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  template:
    spec:
      initContainers: [{name: prepare, image: busybox}]
      containers: [{name: api, image: registry/shop/api:latest}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: worker}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: worker, image: x}]}}}}}
`

// plainShop is an application of two services whose objects Lockstep applies itself.
func plainShop(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	set, err := driver.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if w.bundle, err = set.Get("kubernetes@1"); err != nil {
		t.Fatal(err)
	}
	w.plain = &plainCluster{objects: map[string]object{}, takes: 5 * time.Second, state: "Current"}
	w.files["deploy/all.yaml"] = plainManifests
	return w
}

func plainInputs(edit func(config object)) object {
	return inputs(2, func(_, environment object) {
		config := object{
			"repository_url": "http://git/shop.git", "files": []any{"deploy/all.yaml"}, "namespace": "shop", "deadline": 60,
			"services": []any{object{"service": "api", "container": "api"}, object{"service": "worker", "container": "worker"}},
		}
		if edit != nil {
			edit(config)
		}
		environment["application_environment"] = object{"id": 5, "discovered": object{}, "config": config}
		environment["gates"] = []any{}
	})
}

// Objects are applied with the images of the versions by digest, as of one commit, and are healthy once all of them are current.
// The cluster is looked at soon at first, then less often.
func TestObjectsAreApplied(t *testing.T) {
	t.Parallel()
	w := plainShop(t)
	if failure := w.run(driver.Deploy, plainInputs(nil)); failure != "" {
		t.Fatal(failure)
	}
	expect(t, w,
		"rollout.started", "rollout_environment.started environment_id=3", "deployment.started deployment_id=11",
		"deployment.started deployment_id=12", "apply: 3 objects, keeps 0, prune true", "deployment.committed deployment_id=11",
		"deployment.committed deployment_id=12", "deployment.healthy deployment_id=11", "deployment.healthy deployment_id=12",
		"rollout_environment.healthy environment_id=3", "rollout.healthy")
	args := w.plain.calls[0]
	if found := fmt.Sprint(args["agent_id"], args["namespace"], args["environment_id"]); found != "42shop3" {
		t.Errorf("arguments %v", args)
	}
	for id, want := range map[string]string{"Deployment/api": image("api", 2), "CronJob/worker": image("worker", 2)} {
		if found := fmt.Sprint(w.plain.objects[id]["spec"]); !strings.Contains(found, want) || strings.Contains(found, "latest") {
			t.Errorf("%s: %s, want %s", id, found, want)
		}
	}
	if found := fmt.Sprint(w.plain.objects["Deployment/api"]); !strings.Contains(found, "busybox") {
		t.Errorf("%s: another container has changed", found)
	}
	if c := w.committed[0]; c.CommitSHA != w.head || !strings.Contains(string(c.Parameters), image("api", 2)) {
		t.Errorf("snapshot %+v", c)
	}
	if first := w.plain.looks[2].Sub(w.plain.looks[0]); first > time.Second {
		t.Errorf("the second look is %s after the first, expected at most a second", first)
	}
}

// D53: what is printed counts all objects that were pruned: those that the relay names and those that it only counts. Relays of before name
// all.
func TestPrunedObjectsAreCounted(t *testing.T) {
	t.Parallel()
	two := []any{object{"kind": "ConfigMap", "name": "a"}, object{"kind": "ConfigMap", "name": "b"}}
	for want, pruned := range map[string]object{
		"1998 pruned": {"pruned": two, "more_pruned": 1996, "not_pruned": []any{}, "more_not_pruned": 0, "more_changed": 0},
		"2 pruned":    {"pruned": two, "not_pruned": []any{}},
	} {
		w := plainShop(t)
		w.plain.pruned = pruned
		if failure := w.run(driver.Deploy, plainInputs(nil)); failure != "" {
			t.Fatal(failure)
		}
		if printed := strings.Join(w.log, "\n"); !strings.Contains(printed, "unchanged, "+want) {
			t.Errorf("printed %s, expected %s", printed, want)
		}
	}
}

// A set that does not fit into one call is applied in parts; the last one prunes, and keeps what the others have applied.
func TestPartsOfALargeSet(t *testing.T) {
	t.Parallel()
	w := plainShop(t)
	for i := range 3 {
		w.files["deploy/all.yaml"] += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: large-%d}\ndata: {text: %s}\n", i,
			strings.Repeat("x", 250<<10))
	}
	if failure := w.run(driver.Deploy, plainInputs(nil)); failure != "" {
		t.Fatal(failure)
	}
	story := strings.Join(w.story, "\n")
	if !strings.Contains(story, "apply: 5 objects, keeps 0, prune false") ||
		!strings.Contains(story, "apply: 1 objects, keeps 5, prune true") {
		t.Errorf("story:\n%s", story)
	}
}

// What does not fit is found before anything is applied, and says where it is.
func TestManifestsThatDoNotFit(t *testing.T) {
	t.Parallel()
	second := "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: other}\nspec: {template: {spec: {containers: [{name: api, image: y}]}}}\n"
	for name, tt := range map[string]struct {
		text, more, want string
		edit             func(config object)
	}{
		"a Secret": {
			more: "---\napiVersion: v1\nkind: Secret\nmetadata: {name: token}\n",
			want: "Secret token: its values would become part of the history",
		},
		"another namespace": {
			more: "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: kube-system}\n",
			want: "is in namespace kube-system, expected shop",
		},
		"no name": {more: "---\napiVersion: v1\nkind: ConfigMap\n", want: "without apiVersion, kind and metadata.name"},
		"twice": {
			more: "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n",
			want: "ConfigMap settings is in deploy/all.yaml already",
		},
		"not YAML":           {more: "---\na: [\n", want: "deploy/all.yaml: not YAML"},
		"two of a container": {more: second, want: "expected it in one object (workload names one of several), found it in Deployment/api, Deployment/other"},
		"no such container":  {edit: func(c object) { c["services"].([]any)[0].(object)["container"] = "web" }, want: "found it in none"},
		"no such workload": {
			edit: func(c object) { c["services"].([]any)[0].(object)["workload"] = "Deployment/web" },
			want: "found it in none",
		},
		"a file that is gone": {edit: func(c object) { c["files"] = []any{"deploy/all.yaml", "gone.yaml"} }, want: "read gone.yaml"},
		"no version": {
			edit: func(c object) { c["services"].([]any)[0].(object)["image"] = "other/image" },
			want: "expected one version of other/image",
		},
	} {
		w := plainShop(t)
		w.files["deploy/all.yaml"] += tt.more
		failure := w.run(driver.Deploy, plainInputs(tt.edit))
		if !strings.Contains(failure, tt.want) || len(w.plain.calls) > 0 {
			t.Errorf("%s: failure %q after %d calls, want %q", name, failure, len(w.plain.calls), tt.want)
		}
	}
}

// A conflict, and objects that fail or are late, fail the deployments with the reason.
func TestObjectsThatFail(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(c *plainCluster){
		"apply: Deployment shop/api: fields are managed by others: .spec.replicas": func(c *plainCluster) {
			c.refuses = "Deployment shop/api: fields are managed by others: .spec.replicas"
		},
		"Deployment api is Failed: exceeded its progress deadline": func(c *plainCluster) { c.state = "Failed" },
		"did not become healthy within 60 seconds":                 func(c *plainCluster) { c.takes = time.Hour },
	} {
		w := plainShop(t)
		edit(w.plain)
		if failure := w.run(driver.Deploy, plainInputs(nil)); !strings.Contains(failure, want) {
			t.Errorf("failure %q, want %q", failure, want)
		}
	}
}

// A rollback is a rollout of the earlier version set.
func TestARollbackOfObjects(t *testing.T) {
	t.Parallel()
	w := plainShop(t)
	for _, version := range []int{2, 1} {
		in := plainInputs(nil)
		environment := in["rollout"].(object)["environments"].([]any)[0].(object)
		for _, each := range environment["deployments"].([]any) {
			d := each.(object)
			service := d["service"].(object)["name"].(string)
			d["versions"].([]any)[0].(object)["digest"] = strings.SplitN(image(service, version), "@", 2)[1]
		}
		if failure := w.run(driver.Deploy, in); failure != "" {
			t.Fatal(failure)
		}
		if found := fmt.Sprint(w.plain.objects["Deployment/api"]); !strings.Contains(found, image("api", version)) {
			t.Errorf("version %d: %s", version, found)
		}
	}
}

// rendering answers with the manifests of the application, and records what was asked for.
func (w *world) rendering(name string, args object) (any, *history.FunctionError) {
	w.record("%s: path %v, chart %v %v, credential %v, release %v in %v, values %v, at %v", name, args["path"], args["chart"], args["version"],
		args["chart_credential"], args["release"], args["namespace"], args["values"], args["ref"])
	if args["path"] == "broken" {
		return nil, &history.FunctionError{Code: "invalid", Message: "found a remote base"}
	}
	answer := object{"content": plainManifests}
	if args["ref"] != nil {
		answer["sha"] = w.head
	}
	if name == "manifest.helm" {
		answer["chart"] = object{"name": "shop", "version": "1.2.0", "app_version": "7"}
		if args["release"] == "long" {
			answer["chart"] = object{"name": strings.Repeat("é", 200), "version": "1.2.0", "app_version": "7"}
		}
		if args["chart"] != nil {
			answer["digest"] = "sha256:" + strings.Repeat("c", 64)
		}
	}
	return answer, nil
}

// D53: manifests may be an overlay, a chart of the repository, or one of a registry, and have the images of the versions like any others. A
// chart is shown with its version and digest; without a repository the record has the chart in place of a commit.
func TestManifestsThatAreRendered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit      func(config object)
		asked     string
		submitted string
		commit    bool
		fails     string
	}{
		"an overlay": {
			edit:  func(c object) { delete(c, "files"); c["kustomize"] = object{"path": "overlays/staging"} },
			asked: "manifest.kustomize: path overlays/staging,", commit: true,
		},
		"a chart of the repository": {
			edit: func(c object) {
				delete(c, "files")
				c["helm"] = object{"path": "chart", "release": "shop", "values": "replicas: 2"}
			},
			asked: "manifest.helm: path chart, chart <nil> <nil>, credential <nil>, release shop in shop, values replicas: 2, at main", commit: true,
			submitted: "chart shop 1.2.0",
		},
		"a chart of a registry": {
			edit: func(c object) {
				delete(c, "files")
				delete(c, "repository_url")
				c["helm"] = object{"chart": "oci://ghcr.io/shop/charts/api", "version": "1.2.0", "credential": "charts"}
			},
			asked:     "manifest.helm: path <nil>, chart oci://ghcr.io/shop/charts/api 1.2.0, credential charts, release api in shop, values <nil>, at <nil>",
			submitted: "chart shop 1.2.0 sha256:" + strings.Repeat("c", 64),
		},
		"a chart with a long name": {
			edit: func(c object) {
				delete(c, "files")
				delete(c, "repository_url")
				c["helm"] = object{"chart": "oci://ghcr.io/shop/charts/api", "version": "1.2.0", "release": "long"}
			},
			submitted: "sha256:" + strings.Repeat("c", 64),
		},
		"an overlay that is refused": {
			edit:  func(c object) { delete(c, "files"); c["kustomize"] = object{"path": "broken"} },
			asked: "manifest.kustomize: path broken", fails: "kustomize: found a remote base",
		},
		"files of values without a repository": {
			edit: func(c object) {
				delete(c, "files")
				delete(c, "repository_url")
				c["helm"] = object{"chart": "oci://ghcr.io/shop/api", "version": "1.2.0", "value_files": []any{"a.yaml"}}
			},
			fails: "helm: expected repository_url for path and value_files",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := plainShop(t)
			failure := w.run(driver.Deploy, plainInputs(tt.edit))
			story := strings.Join(w.story, "\n")
			if !strings.Contains(story, tt.asked) {
				t.Errorf("found no %q in\n%s", tt.asked, story)
			}
			if tt.fails != "" {
				if !strings.Contains(failure, tt.fails) || len(w.plain.calls) > 0 {
					t.Errorf("failure %q after %d calls, expected %q", failure, len(w.plain.calls), tt.fails)
				}
				return
			}
			if failure != "" {
				t.Fatal(failure)
			}
			if found := fmt.Sprint(w.plain.objects["Deployment/api"]["spec"]); !strings.Contains(found, image("api", 2)) {
				t.Errorf("found %s, expected the image %s", found, image("api", 2))
			}
			if len(w.committed) != 2 || (w.committed[0].CommitSHA != "") != tt.commit ||
				!tt.commit && !strings.Contains(string(w.committed[0].Parameters), "sha256:"+strings.Repeat("c", 64)) {
				t.Errorf("recorded %+v, expected a commit: %t", w.committed, tt.commit)
			}
			if got := strings.Contains(story, "deployment.submitted deployment_id=11"); got != (tt.submitted != "") {
				t.Errorf("submitted: %t, expected %q in\n%s", got, tt.submitted, story)
			}
		})
	}
}
