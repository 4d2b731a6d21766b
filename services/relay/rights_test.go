package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/services/relay/internal/cluster"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// notes is an API server that records requests in terms of a role, and plays both controllers.
type notes struct {
	mu      sync.Mutex
	asked   map[string]map[string]bool
	objects map[string]map[string]any
	version int
}

// resourceOf splits a path: group, resource with its subresource, name.
func resourceOf(path string) (group, resource, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "apis" {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[2:] // the version, and api for the core group
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return group, resource, name
}

func verbOf(r *http.Request, name string) string {
	switch {
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPatch:
		return "patch"
	case r.Method == http.MethodDelete:
		return "delete"
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		return "watch"
	case name == "":
		return "list"
	default:
		return "get"
	}
}

func (n *notes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if found := discovery(r.URL.Path); found != nil { // every account may read it
		n.reply(w, http.StatusOK, found)
		return
	}
	group, resource, name := resourceOf(r.URL.Path)
	verb, key := verbOf(r, name), group+" "+resource
	if n.asked[key] == nil {
		n.asked[key] = map[string]bool{}
	}
	n.asked[key][verb] = true
	if r.Header.Get("Content-Type") == "application/apply-patch+yaml" && n.objects[resource+"/"+name] == nil {
		n.asked[key]["create"] = true // an API server asks for both rights
	}
	object := n.objects[strings.TrimSuffix(resource, "/status")+"/"+name]
	switch verb {
	case "list":
		items := []any{}
		if resource == "pods" {
			items = append(items, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p", "namespace": "shop"}})
		}
		if resource == "services" { // one to prune
			items = append(items, map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{
				"name": "old", "namespace": "shop", "uid": "3", "resourceVersion": "1", "labels": map[string]any{"lockstep.dev/owner": "o1.e3.a5"},
				"managedFields": []any{map[string]any{"manager": "lockstep-o1.e3.a5", "operation": "Apply"}},
			}})
		}
		n.reply(w, http.StatusOK, map[string]any{
			"apiVersion": group + "/v1alpha1", "kind": "List",
			"metadata": map[string]any{"resourceVersion": "1"}, "items": items,
		})
	case "watch": // like an old server: no initial events, so that the client lists
		n.reply(w, http.StatusUnprocessableEntity, map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"reason": "Invalid", "code": 422,
		})
	case "delete":
		n.reply(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case "create", "patch":
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		n.write(resource, name, body)
		if verb == "patch" && object != nil {
			body = object
		}
		n.reply(w, http.StatusOK, body)
	default:
		if object == nil {
			n.reply(w, http.StatusNotFound, map[string]any{
				"kind": "Status", "apiVersion": "v1", "status": "Failure",
				"reason": "NotFound", "code": 404,
			})
			return
		}
		n.reply(w, http.StatusOK, object)
	}
}

// discovery is what an API server answers about the kinds that can be pruned.
func discovery(path string) map[string]any {
	switch path {
	case "/api":
		return map[string]any{"kind": "APIVersions", "versions": []any{"v1"}}
	case "/apis":
		return map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}}
	case "/api/v1":
		return map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
			map[string]any{"name": "services", "kind": "Service", "namespaced": true, "verbs": []any{"delete", "list"}},
			map[string]any{"name": "services/status", "kind": "Service", "namespaced": true, "verbs": []any{"get"}},
		}}
	}
	return nil
}

// write stores a created object, and executes an operation at once.
func (n *notes) write(resource, name string, body map[string]any) {
	meta, _ := body["metadata"].(map[string]any)
	if name == "" {
		name, _ = meta["name"].(string)
		n.objects[resource+"/"+name] = body
	}
	n.version++
	meta["resourceVersion"] = fmt.Sprint(n.version)
	if operation, isSync := body["operation"].(map[string]any); isSync {
		sync, _ := operation["sync"].(map[string]any)
		n.objects[resource+"/"+name]["status"] = map[string]any{"operationState": map[string]any{
			"phase": "Succeeded", "operation": operation, "syncResult": map[string]any{"revision": sync["revision"]},
		}}
	}
}

func (*notes) reply(w http.ResponseWriter, code int, body map[string]any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// ours is an object that Lockstep has created for organization 7.
func ours(apiVersion, kind string) map[string]any {
	return map[string]any{
		"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"name": "present", "namespace": "shop", "resourceVersion": "1", "labels": map[string]any{
			"app.kubernetes.io/managed-by": "lockstep", "lockstep.dev/organization": "7",
		}},
		"spec": map[string]any{},
	}
}

// used performs every duty of the relay, and returns the rights that it needed.
func used(t *testing.T) []Right {
	t.Helper()
	n := &notes{asked: map[string]map[string]bool{}, objects: map[string]map[string]any{
		"appprojects/default": {
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
			"metadata": map[string]any{"name": "default", "namespace": "argocd"},
		},
		"configmaps/settings": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}},
		"cronjobs/nightly":    {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": map[string]any{"name": "nightly", "uid": "1"}},
		"services/web":        {"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web", "uid": "2"}},
		"pods/log/api-1":      {},
		"rollouts/api": {
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
			"metadata": map[string]any{"name": "api", "namespace": "shop", "generation": 1, "resourceVersion": "1"},
			"spec":     map[string]any{"strategy": map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"pause": map[string]any{}}}}}},
			"status": map[string]any{
				"observedGeneration": "1", "phase": "Paused", "currentStepIndex": 0, "currentPodHash": "new", "stableRS": "old",
				"pauseConditions": []any{map[string]any{"reason": "CanaryPauseStep"}},
			},
		},
		"workflows/present":    ours("argoproj.io/v1alpha1", "Workflow"),
		"jobs/present":         ours("batch/v1", "Job"),
		"analysisruns/present": ours("argoproj.io/v1alpha1", "AnalysisRun"),
		"analysistemplates/errors": {
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AnalysisTemplate",
			"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"metrics": []any{map[string]any{"name": "errors"}}},
		},
		"clusteranalysistemplates/latency": {
			"apiVersion": "argoproj.io/v1alpha1", "kind": "ClusterAnalysisTemplate",
			"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"metrics": []any{map[string]any{"name": "latency"}}},
		},
		"pods/log/p": {},
		"rollouts/aborted": {
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
			"metadata": map[string]any{"name": "aborted", "namespace": "shop", "generation": 1, "resourceVersion": "1"},
			"status":   map[string]any{"observedGeneration": "1", "abort": true, "currentPodHash": "new", "stableRS": "old"},
		},
	}}
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Open(cluster.Config{Kubeconfig: kubeconfig, RequestTimeout: 10 * time.Second}, clock.System())
	if err != nil {
		t.Fatal(err)
	}
	limits := config.WithDefaults(Config{
		AllowWorkflowNamespaces: []string{"shop"}, AllowJobNamespaces: []string{"shop"},
		AllowAnalysisNamespaces: []string{"shop"},
	}).limits()
	limits.Objects = core.ObjectLimits{
		Apply: []string{"services"}, Patch: []string{"configmaps"}, Delete: []string{"cronjobs.batch"}, Logs: true, Others: []string{"*"},
	}
	runner := core.NewRunner(core.RunnerDeps{
		Cluster: c, Objects: c, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
		Poll: time.Second, Limits: limits,
	})
	of := `"rollout_namespace":"shop","rollout_name":`
	for function, args := range map[string]string{
		core.FunctionSync: `{"app_name":"shop","app_namespace":"argocd","revision":"1111111111111111111111111111111111111111",
			"source":{"repo_url":"https://git/shop","path":"staging","destination_namespace":"shop"}}`,
		core.FunctionPromote: `{` + of + `"api","step_index":0}`,
		core.FunctionAbort:   `{` + of + `"api"}`,
		core.FunctionRetry:   `{` + of + `"aborted"}`,
		core.FunctionGet:     `{"kind":"Deployment","namespace":"argocd","name":"argocd-repo-server"}`,
		core.FunctionCheck: `{"app_name":"shop","app_namespace":"argocd",
			"source":{"repo_url":"https://git/shop","path":"staging","destination_namespace":"shop"}}`,
		core.FunctionApply: `{"namespace":"shop","prune":true,"objects":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"api"}},
			{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}}]}`,
		core.FunctionPatch:       `{"api_version":"v1","kind":"ConfigMap","namespace":"shop","name":"settings","patch":{"data":{"a":"b"}}}`,
		core.FunctionDelete:      `{"api_version":"batch/v1","kind":"CronJob","namespace":"shop","name":"nightly"}`,
		core.FunctionLogs:        `{"namespace":"shop","pod":"api-1"}`,
		core.FunctionHealth:      `{"namespace":"shop","objects":[{"api_version":"apps/v1","kind":"Deployment","name":"api"}]}`,
		core.FunctionTerminate:   `{"app_name":"shop","app_namespace":"argocd","operation":"x"}`,
		core.FunctionList:        `{"kind":"Deployment","labels":"a=b","fields":["status"]}`,
		core.FunctionList + " 2": `{"kind":"StatefulSet","labels":"a=b","fields":["status"]}`,
		core.FunctionGet + " 2":  `{"kind":"StatefulSet","namespace":"argocd","name":"argocd-application-controller"}`,
		core.FunctionSubmitWorkflow: `{"namespace":"shop","workflow":{"apiVersion":"argoproj.io/v1alpha1","kind":"Workflow",
			"metadata":{"name":"migrate"}}}`,
		core.FunctionStopWorkflow:      `{"namespace":"shop","name":"present"}`,
		core.FunctionTerminateWorkflow: `{"namespace":"shop","name":"present"}`,
		core.FunctionWorkflowLogs:      `{"namespace":"shop","name":"present"}`,
		core.FunctionRunJob:            `{"namespace":"shop","job":{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"migrate"}}}`,
		core.FunctionStopJob:           `{"namespace":"shop","name":"present"}`,
		core.FunctionJobLogs:           `{"namespace":"shop","name":"present"}`,
		core.FunctionAnalyze:           `{"namespace":"shop","templates":[{"name":"errors"},{"name":"latency","cluster_scope":true}]}`,
		core.FunctionEndAnalysis:       `{"namespace":"shop","name":"present"}`,
	} {
		function, _, _ = strings.Cut(function, " ")
		answer := runner.Run(t.Context(), core.Call{
			ID: function, Function: function, Owner: "o1.e3.a5", Organization: "7", Args: json.RawMessage(args),
			Deadline: clock.System().Now().Add(time.Minute),
		})
		if answer.Err != nil {
			t.Errorf("%s: %v", function, answer.Err)
		}
	}
	for kind, version := range map[string]string{ // k8s.watch, and the standing reports
		"Rollout": "argoproj.io/v1alpha1", "Application": "argoproj.io/v1alpha1", "Workflow": "argoproj.io/v1alpha1", "Job": "batch/v1",
		"AnalysisRun": "argoproj.io/v1alpha1",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		c.Follow(ctx, core.Selection{Kind: core.Kind{APIVersion: version, Kind: kind}, Namespace: "shop", Name: "api"},
			func(change core.Change) {
				if change.Name == "" && change.Err == nil && !change.Reached {
					cancel()
				}
			})
		cancel()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var rights []Right
	for _, key := range slices.Sorted(maps.Keys(n.asked)) {
		group, resource, _ := strings.Cut(key, " ")
		rights = append(rights, Right{Group: group, Resource: resource, Verbs: slices.Sorted(maps.Keys(n.asked[key]))})
	}
	return rights
}

func TestRightsAreThoseThatAreUsed(t *testing.T) {
	t.Parallel()
	want := append(Rights(), RightsOnObjects([]string{"services"}, []string{"configmaps"}, []string{"cronjobs.batch"}, true)...)
	// The one to get pods is for programs that look for the pod whose log they read.
	want = slices.DeleteFunc(want, func(r Right) bool { return r.Resource == "pods" && !r.Tasks || r.Resource == "pods/log" && !r.Tasks })
	slices.SortFunc(want, func(a, b Right) int { return strings.Compare(a.Group+" "+a.Resource, b.Group+" "+b.Resource) })
	for i := range want {
		want[i].For, want[i].Tasks = "", false
	}
	if diff := cmp.Diff(want, used(t)); diff != "" {
		t.Errorf("rights (-table +used):\n%s", diff)
	}
}

// The roles that the scenarios on a real cluster use, which are the chart's, grant exactly the table: one what every relay needs, the other
// what those need whose configuration names namespaces for Workflows and Jobs.
func TestTheRolesGrantTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "tools", "e2e", "cluster", "manifests", "relay.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	for i, tasks := range []bool{false, true} {
		var role struct {
			Rules []struct{ APIGroups, Resources, Verbs []string }
		}
		if err := utilyaml.Unmarshal([]byte(documents[i]), &role); err != nil {
			t.Fatal(err)
		}
		granted := map[string][]string{}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[group+" "+resource] = slices.Sorted(slices.Values(rule.Verbs))
				}
			}
		}
		want := map[string][]string{}
		for _, r := range Rights() {
			if r.Tasks == tasks {
				want[r.Group+" "+r.Resource] = r.Verbs
			}
		}
		if diff := cmp.Diff(want, granted); diff != "" {
			t.Errorf("tasks %t: granted (-table +role):\n%s", tasks, diff)
		}
	}
}

// By default the system's namespaces, Argo CD's own and other clusters cannot be deployed to, and no project may allow them.
func TestTheDefaultLimits(t *testing.T) {
	t.Parallel()
	c := config.WithDefaults(Config{AgentID: 1})
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	want := core.Limits{
		DestinationNamespaces: []string{"*", "!kube-system", "!kube-public", "!kube-node-lease"},
		DestinationServers:    []string{"https://kubernetes.default.svc", "in-cluster"},
		ClusterKinds:          []string{"/Namespace"},
		Home:                  "argocd",
	}
	if diff := cmp.Diff(want, c.limits()); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	c.AllowProjects, c.AllowRepositories = []string{"!root"}, []string{"a b", "!"}
	err := c.Validate()
	for _, want := range []string{
		`allow_projects: found only ["!root"], which allow nothing`, `allow_repositories[0]: found "a b"`,
		`allow_repositories[1]: found "!"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}
