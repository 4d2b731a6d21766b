// Package simcluster is a simulated Kubernetes cluster with Argo CD and Argo Rollouts in it, for `lockstep dev`, the demo
// and tests. It answers the Kubernetes API over HTTP, keeps its objects through a kill -9, fetches real commits from real
// Git servers, and reads from an image's configuration, in its real registry, how its pods behave.
//
// It runs nothing: no container, no traffic. End-to-end tests use the real controllers instead.
package simcluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/run"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/argocd"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/rollouts"
)

// stopWithin bounds how long requests in progress may take to end.
const stopWithin = 5 * time.Second

// defaultSpeed has a pod start within a fifth of a second, and a progress deadline of 30 seconds pass in three.
const defaultSpeed = 10

// Config says where the cluster lives and what it may use.
type Config struct {
	// Address to listen on, host:port. The API is plain HTTP.
	Address string
	// Dir keeps the objects; empty keeps them in memory.
	Dir string
	// Token that every request has to carry; empty for none.
	Token string
	// GitUsername and GitPassword sign Argo CD in at Git servers.
	GitUsername, GitPassword string
	// Speed is how many seconds pass in the cluster for one outside; 0 is ten.
	Speed float64
	// Clock is what time comes from; nil is the system's.
	Clock clock.Clock
	// Registry is the host:port of the registry whose images Deployments are looked at for; those of others only if given by digest.
	Registry string
	// Images says how images behave; nil asks their registries for the label lockstep.dev/simulate.
	Images rollouts.Images
}

// Run serves the cluster until ctx ends. ready is called once connections are accepted.
func Run(ctx context.Context, c Config, log *slog.Logger, ready func()) error {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Speed <= 0 {
		c.Speed = defaultSpeed
	}
	if c.Images == nil {
		c.Images = rollouts.NewRegistry(c.Clock)
	}
	store, err := apiserver.OpenStore(c.Dir, c.Clock)
	if err != nil {
		return err
	}
	if err := furnish(store); err != nil {
		return fmt.Errorf("furnish the simulated cluster: %w", err)
	}
	listener, err := rpc.Listen(ctx, clock.System(), c.Address)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "simulated cluster listening", "address", listener.Addr().String())
	return run.Parts(ctx, log, stopWithin, parts(store, listener, c, log, ready)...)
}

func parts(store *apiserver.Store, listener net.Listener, c Config, log *slog.Logger, ready func()) []run.Part {
	cd := argocd.New(argocd.Deps{
		Store: store, Clock: c.Clock, Log: log.With("controller", "argocd"),
		Credentials: argocd.Credentials{Username: c.GitUsername, Password: c.GitPassword},
	})
	canary := rollouts.New(rollouts.Deps{
		Store: store, Clock: c.Clock, Log: log.With("controller", "argo-rollouts"),
		Images: c.Images, Speed: c.Speed,
	})
	controller := func(name string, work func(context.Context) error) run.Part {
		return run.Part{Name: name, Run: func(ctx context.Context, started func()) error {
			started()
			return work(ctx)
		}}
	}
	return []run.Part{
		controller("argocd", cd.Run),
		controller("argo-rollouts", canary.Run),
		controller("kube-controller-manager", func(ctx context.Context) error { return standIns(ctx, store, c.Clock) }),
		controller("deployment-controller", func(ctx context.Context) error {
			return deploymentController{
				store: store, images: c.Images, registry: c.Registry, clock: c.Clock, log: log.With("controller", "deployment"),
			}.run(ctx)
		}),
		{Name: "kube-apiserver", Run: func(ctx context.Context, started func()) error {
			started()
			ready()
			return rpc.ServeHTTP(ctx, log, listener, apiserver.NewServer(ctx, store, c.Token))
		}},
	}
}

// furnish puts into a new cluster what Lockstep expects operators to have installed. What exists already stays.
func furnish(store *apiserver.Store) error {
	for _, name := range []string{"default", "kube-system", "argocd", "argo-rollouts"} {
		if err := put(store, apiserver.Namespaces, "", name, nil); err != nil {
			return err
		}
	}
	if err := put(store, apiserver.AppProjects, "argocd", "default", map[string]any{
		"sourceRepos": []any{"*"}, "destinations": confined(),
		"clusterResourceWhitelist": []any{map[string]any{"group": "", "kind": "Namespace"}},
	}); err != nil {
		return err
	}
	if err := confine(store); err != nil {
		return err
	}
	one := map[string]any{"replicas": int64(1)}
	for _, w := range []struct {
		resource        apiserver.Resource
		namespace, name string
	}{
		{apiserver.Deployments, "argo-rollouts", "argo-rollouts"},
		{apiserver.StatefulSets, "argocd", "argocd-application-controller"},
		{apiserver.Deployments, "argocd", "argocd-repo-server"},
	} {
		if err := put(store, w.resource, w.namespace, w.name, one); err != nil {
			return err
		}
		if err := markReady(store, apiserver.Key{Resource: w.resource, Namespace: w.namespace, Name: w.name}); err != nil {
			return err
		}
	}
	return nil
}

// confine narrows the project of a cluster that was furnished when a project of ours allowed everything. One that was changed since
// stays as it is.
func confine(store *apiserver.Store) error {
	everything := []any{map[string]any{"namespace": "*", "server": "*"}}
	_, err := store.Modify(apiserver.Key{Resource: apiserver.AppProjects, Namespace: "argocd", Name: "default"}, apiserver.Whole,
		func(o apiserver.Object) (apiserver.Object, error) {
			if reflect.DeepEqual(o.List("spec", "destinations"), everything) && o.Text("metadata", "labels", furniture) != "" {
				o.Set(confined(), "spec", "destinations")
			}
			return o, nil
		})
	if err != nil {
		return fmt.Errorf("confine the project: %w", err)
	}
	return nil
}

// confined are the destinations that a project may have by the relay's defaults: this cluster, without its system's namespaces.
func confined() []any {
	all := []any{map[string]any{"server": "https://kubernetes.default.svc", "namespace": "*"}}
	for _, name := range []string{"kube-system", "kube-public", "kube-node-lease", "argocd"} {
		all = append(all, map[string]any{"server": "*", "namespace": "!" + name})
	}
	return all
}

// standIns has every StatefulSet show one pod that runs, and every Job one that has done its work, as Kubernetes' own
// controllers would bring about. A Job whose pod fails says so in its template: the annotation simulated.lockstep.dev/fails is why.
func standIns(ctx context.Context, store *apiserver.Store, clk clock.Clock) error {
	for ctx.Err() == nil {
		changed := store.Changed()
		all, _ := store.List(apiserver.StatefulSets, "")
		for _, o := range all {
			if o.Map("status") != nil {
				continue
			}
			err := markReady(store, apiserver.Key{Resource: apiserver.StatefulSets, Namespace: o.Namespace(), Name: o.Name()})
			if err != nil && !apiserver.Is(err, "NotFound") {
				return err
			}
		}
		if err := finishJobs(store, clk.Now()); err != nil {
			return err
		}
		if err := finishWorkflows(store); err != nil {
			return err
		}
		timer := clk.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
	return nil
}

// finishWorkflows ends the Workflows that have not ended: as succeeded, as failed for the reason in the annotation
// simulated.lockstep.dev/fails, or as stopped. One with the annotation simulated.lockstep.dev/runs only ends when it is stopped.
func finishWorkflows(store *apiserver.Store) error {
	all, _ := store.List(apiserver.Workflows, "")
	for _, o := range all {
		status := map[string]any{"phase": "Succeeded", "progress": "1/1"}
		switch why, how := o.Text("metadata", "annotations", "simulated.lockstep.dev/fails"), o.Text("spec", "shutdown"); {
		case how != "":
			status["phase"], status["message"] = "Failed", "Stopped with strategy '"+how+"'"
		case why != "":
			status["phase"], status["message"] = "Failed", why
		case o.Text("metadata", "annotations", "simulated.lockstep.dev/runs") != "":
			status = map[string]any{"phase": "Running", "progress": "0/1"}
		}
		if phase := o.Text("status", "phase"); phase == status["phase"] || phase == "Succeeded" || phase == "Failed" {
			continue
		}
		_, err := store.Modify(apiserver.Key{Resource: apiserver.Workflows, Namespace: o.Namespace(), Name: o.Name()}, apiserver.Whole,
			func(o apiserver.Object) (apiserver.Object, error) {
				o["status"] = status
				return o, nil
			})
		if err != nil && !apiserver.Is(err, "NotFound") {
			return fmt.Errorf("status of Workflow %s: %w", o.Name(), err)
		}
	}
	return nil
}

// furniture is the label of what furnish has created.
const furniture = "simulated.lockstep.dev/furniture"

func put(store *apiserver.Store, r apiserver.Resource, namespace, name string, spec map[string]any) error {
	metadata := map[string]any{"name": name, "labels": map[string]any{furniture: "true"}}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	o := apiserver.Object{"apiVersion": r.APIVersion(), "kind": r.Kind, "metadata": metadata}
	if spec != nil {
		o["spec"] = spec
	}
	if _, err := store.Create(r, o); err != nil && !apiserver.Is(err, "AlreadyExists") {
		return fmt.Errorf("create %s %s: %w", r.Kind, name, err)
	}
	return nil
}

// markReady has a controller's object show one pod that runs. One whose status was written by a client stays as it is, so
// that a test can take a controller away.
func markReady(store *apiserver.Store, k apiserver.Key) error {
	_, err := store.Modify(k, apiserver.Status, func(o apiserver.Object) (apiserver.Object, error) {
		if o.Map("status") == nil {
			o["status"] = map[string]any{
				"replicas": int64(1), "readyReplicas": int64(1), "availableReplicas": int64(1),
				"updatedReplicas": int64(1), "observedGeneration": int64(1),
			}
		}
		return o, nil
	})
	if err != nil {
		return fmt.Errorf("status of %s %s: %w", k.Resource.Kind, k.Name, err)
	}
	return nil
}

// Kubeconfig is a kubeconfig for the cluster at host:port. It has no token, even for a cluster that wants one: client-go
// sends those of a kubeconfig over TLS only.
func Kubeconfig(address string) ([]byte, error) {
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "simulated",
		"clusters": []any{map[string]any{"name": "simulated", "cluster": map[string]any{"server": "http://" + address}}},
		"users":    []any{map[string]any{"name": "relay", "user": map[string]any{}}},
		"contexts": []any{map[string]any{"name": "simulated", "context": map[string]any{"cluster": "simulated", "user": "relay"}}},
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return text, nil
}
