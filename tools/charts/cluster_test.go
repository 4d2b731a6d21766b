package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/e2e/cluster"
)

// installWithin bounds one step of Helm, including pods becoming ready.
const installWithin = 2 * time.Minute

// TestOnARealAPIServer installs each file of values with Helm into a namespace that enforces restricted pods, waits until all pods are
// ready, upgrades, rolls back and uninstalls, and checks that nothing is left. It needs the cluster's programs, so `make charts` skips it
// and `make e2e-charts` runs it.
//
//nolint:tparallel,paralleltest // one cluster on a small machine: each installation waits for its own pods
func TestOnARealAPIServer(t *testing.T) {
	t.Parallel()
	programs := os.Getenv("LOCKSTEP_CLUSTER")
	if programs == "" {
		t.Skip("LOCKSTEP_CLUSTER, the folder that tools/cluster/build.sh prints, is not set")
	}
	c, err := cluster.Start(t.Context(), cluster.Config{Programs: programs, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	a := connect(t, c)
	for _, chart := range charts() {
		for name, values := range cases(t, chart) {
			t.Run(chart+"/"+name, func(t *testing.T) {
				a.live(t, chart, name, values)
			})
		}
	}
	t.Run("rights of the relay", a.relayRights)
}

// apiServer is a real API server, with clients.
type apiServer struct {
	cluster    *cluster.Cluster
	objects    dynamic.Interface
	kinds      discovery.DiscoveryInterface
	kubeconfig string
}

func connect(t *testing.T, c *cluster.Cluster) *apiServer {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 500, 500
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &apiServer{cluster: c, objects: c.API(), kinds: kinds, kubeconfig: c.Kubeconfig("admin")}
}

// live takes a release through its life cycle.
func (a *apiServer) live(t *testing.T, chart, name string, values map[string]any) {
	t.Helper()
	namespace := chart + "-" + name
	a.namespace(t, namespace)
	suit(chart, name, values)
	for _, n := range namespaces(values) {
		a.namespace(t, n)
	}
	helm := a.helm(t, namespace)
	loaded, err := loader.Load(filepath.Join(root, "charts", chart))
	if err != nil {
		t.Fatal(err)
	}
	// Volumes are never bound here, so pods with one stay pending.
	wait := kube.StatusWatcherStrategy
	if strings.Contains(fmt.Sprint(values), "bundled") {
		wait = kube.HookOnlyStrategy
	}
	before := a.everything(t)

	install := action.NewInstall(helm)
	install.ReleaseName, install.Namespace, install.Timeout, install.WaitStrategy = "lockstep", namespace, installWithin, wait
	if _, err := install.RunWithContext(t.Context(), loaded, values); err != nil {
		t.Fatalf("install: %v", err)
	}
	first := a.everything(t)
	if len(first) <= len(before) {
		t.Fatal("nothing was installed")
	}

	upgrade := action.NewUpgrade(helm)
	upgrade.Namespace, upgrade.Timeout, upgrade.WaitStrategy = namespace, installWithin, wait
	if _, err := upgrade.RunWithContext(t.Context(), "lockstep", loaded, upgraded(chart, values)); err != nil {
		t.Fatalf("upgrade: %v", err)
	}
	rollback := action.NewRollback(helm)
	rollback.Version, rollback.Timeout, rollback.WaitStrategy = 1, installWithin, wait
	if err := rollback.Run("lockstep"); err != nil {
		t.Fatalf("roll back: %v", err)
	}
	if diff := cmp.Diff(a.labelled(first), a.labelled(a.everything(t))); diff != "" {
		t.Errorf("after the rollback (-first +now):\n%s", diff)
	}

	uninstall := action.NewUninstall(helm)
	uninstall.Timeout, uninstall.WaitStrategy, uninstall.DeletionPropagation = installWithin, kube.StatusWatcherStrategy, "foreground"
	if _, err := uninstall.Run("lockstep"); err != nil {
		t.Fatalf("uninstall: %v", err)
	}
	var diff string
	for range 60 { // controllers delete objects a moment later
		if diff = cmp.Diff(a.labelled(before), a.labelled(a.everything(t))); diff == "" ||
			clock.Sleep(t.Context(), clock.System(), time.Second) != nil {
			break
		}
	}
	if diff != "" {
		t.Errorf("after uninstalling (-before +now):\n%s", diff)
	}
}

// suit removes what needs features that this cluster lacks: third-party APIs, priorities, zones and node pools.
func suit(chart, name string, values map[string]any) {
	switch {
	case chart == "lockstep" && name == "production":
		set(values, false, "registry", "httpRoute", "enabled")
		set(values, "", "domain", "priorityClassName")
		set(values, map[string]any{}, "domain", "affinity")
		set(values, []any{}, "domain", "topologySpreadConstraints")
		// No KEDA, no other runtime, and pods never end.
		set(values, false, "workflow", "autoscaling", "keda", "enabled")
		set(values, "", "registry", "runtimeClassName")
		set(values, false, "migrations", "job", "enabled")
		set(values, []any{}, "registry", "initContainers")
		set(values, []any{}, "workflow", "sidecars")
	case chart == "lockstep-relay" && name == "full":
		set(values, "", "priorityClassName")
		set(values, "", "runtimeClassName")
		set(values, []any{}, "initContainers")
		set(values, []any{}, "sidecars")
	}
	// KWOK's nodes have no disk space: a pod that requests some stays pending, also for other containers of these values.
	for _, component := range []string{"registry", "domain", "workflow"} {
		if chart == "lockstep" {
			set(values, nil, component, "resources", "requests", "ephemeral-storage")
			set(values, nil, component, "resources", "limits", "ephemeral-storage")
		}
	}
	if chart == "lockstep-relay" {
		set(values, nil, "resources", "requests", "ephemeral-storage")
		set(values, nil, "resources", "limits", "ephemeral-storage")
	}
}

// upgraded returns the values of a next version: with another image.
func upgraded(chart string, values map[string]any) map[string]any {
	next := maps.Clone(values)
	if chart == "lockstep" {
		next["global"] = map[string]any{"imageTag": "0.3.0"}
	} else {
		next["image"] = map[string]any{"tag": "0.3.0"}
	}
	return next
}

func set(values map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		inner, ok := values[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[key] = inner
		}
		values = inner
	}
	values[path[len(path)-1]] = value
}

// namespaces returns the namespaces that the values name.
func namespaces(values map[string]any) []string {
	names, _, err := unstructured.NestedStringSlice(values, "rbac", "namespaces")
	if err != nil {
		return nil
	}
	for _, service := range []string{"registry", "domain", "workflow"} {
		secrets, _, err := unstructured.NestedSlice(values, service, "kubernetesSecrets")
		if err != nil {
			continue
		}
		for _, each := range secrets {
			if of, ok := each.(map[string]any); ok {
				names = append(names, fmt.Sprint(of["namespace"]))
			}
		}
	}
	return names
}

func (a *apiServer) namespace(t *testing.T, name string) {
	t.Helper()
	text := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name + "\n"
	if strings.HasPrefix(name, "lockstep") {
		text += "  labels: {pod-security.kubernetes.io/enforce: restricted}\n"
	}
	if err := a.cluster.Apply(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (a *apiServer) helm(t *testing.T, namespace string) *action.Configuration {
	t.Helper()
	settings := cli.New()
	settings.KubeConfig = a.kubeconfig
	settings.SetNamespace(namespace)
	helm := action.NewConfiguration()
	if err := helm.Init(settings.RESTClientGetter(), namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return helm
}

// everything lists every object that our charts or Helm may have created, by kind, namespace and name.
func (a *apiServer) everything(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, r := range a.resources(t) {
		for _, owner := range []string{"app.kubernetes.io/part-of=lockstep", "owner=helm"} {
			list, err := a.objects.Resource(r).List(t.Context(), metav1.ListOptions{LabelSelector: owner})
			if err != nil {
				t.Fatalf("list %s: %v", r.Resource, err)
			}
			for _, o := range list.Items {
				all = append(all, r.Resource+" "+o.GetNamespace()+"/"+o.GetName())
			}
		}
	}
	slices.Sort(all)
	return all
}

// resources returns the listable resources, without those that the API server generates.
func (a *apiServer) resources(t *testing.T) []schema.GroupVersionResource {
	t.Helper()
	lists, err := a.kinds.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var all []schema.GroupVersionResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	return all
}

// labelled omits objects with generated names: pods, ReplicaSets, revisions, and Helm's own record of the release.
func (*apiServer) labelled(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		for _, prefix := range []string{
			"pods ", "replicasets ", "controllerrevisions ", "endpointslices ", "endpoints ",
			"persistentvolumeclaims ",
		} {
			if strings.HasPrefix(s, prefix) {
				return true
			}
		}
		return strings.Contains(s, "/sh.helm.release")
	})
}

// relayRights asks the API server about every verb on every kind: the account of the chart's relay may do exactly what its role lists.
func (a *apiServer) relayRights(t *testing.T) {
	const namespace = "lockstep-relay-rights"
	a.namespace(t, namespace)
	loaded, err := loader.Load(filepath.Join(root, "charts", "lockstep-relay"))
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(a.helm(t, namespace))
	install.ReleaseName, install.Namespace, install.WaitStrategy = "relay", namespace, kube.HookOnlyStrategy
	if _, err := install.RunWithContext(t.Context(), loaded, cases(t, "lockstep-relay")["minimal"]); err != nil {
		t.Fatal(err)
	}
	lists, err := a.kinds.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var may []string
	asked := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, r := range list.APIResources {
			names = append(names, r.Name, r.Name+"/status")
		}
		for _, name := range names {
			for _, verb := range []string{
				"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate",
				"escalate", "bind",
			} {
				asked++
				if a.allowed(t.Context(), t, "system:serviceaccount:"+namespace+":relay", verb, gv.Group, name) {
					may = append(may, verb+" "+gv.Group+"/"+name)
				}
			}
		}
	}
	slices.Sort(may)
	want := []string{
		"create argoproj.io/applications",
		"get apps/deployments", "get apps/statefulsets", "get argoproj.io/applications", "get argoproj.io/appprojects",
		"get argoproj.io/rollouts",
		"list apps/deployments", "list apps/statefulsets", "list argoproj.io/applications", "list argoproj.io/rollouts",
		"patch argoproj.io/applications", "patch argoproj.io/rollouts/status",
		"watch argoproj.io/applications", "watch argoproj.io/rollouts",
	}
	if diff := cmp.Diff(want, may); diff != "" {
		t.Errorf("of %d questions, allowed (-want +got):\n%s", asked, diff)
	}
}

func (a *apiServer) allowed(ctx context.Context, t *testing.T, user, verb, group, resource string) bool {
	t.Helper()
	name, sub, _ := strings.Cut(resource, "/")
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{"user": user, "resourceAttributes": map[string]any{
			"verb": verb, "group": group, "resource": name, "subresource": sub, "namespace": "shop",
		}},
	}}
	reviews := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
	answer, err := a.objects.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("ask whether %s may %s %s: %v", user, verb, resource, err)
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}
