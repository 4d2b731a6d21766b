package rollouts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/rollouts"
)

// images are labels by reference; a reference without an entry cannot be pulled.
type images map[string]string

func (i images) Labels(_ context.Context, reference string) (map[string]string, error) {
	label, ok := i[reference]
	if !ok {
		return nil, errors.New("not found")
	}
	return map[string]string{rollouts.SimulateLabel: label}, nil
}

// cluster is a store, a controller and a clock that stands still.
type cluster struct {
	t          *testing.T
	store      *apiserver.Store
	clock      *clocktest.Clock
	controller *rollouts.Controller
	images     images
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	clk := clocktest.New(time.Unix(1_774_432_800, 0).UTC())
	store, err := apiserver.OpenStore("", clk)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(apiserver.Namespaces,
		apiserver.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, store: store, clock: clk, images: images{"v1": "", "v2": "", "bad": "degraded-at=50"}}
	c.restart()
	return c
}

// restart replaces the controller, which forgets what it had in memory.
func (c *cluster) restart() {
	c.controller = rollouts.New(rollouts.Deps{Store: c.store, Clock: c.clock, Log: slog.New(slog.DiscardHandler), Images: c.images})
}

// settle lets d pass and the controller do all it wants to.
func (c *cluster) settle(d time.Duration) {
	for elapsed := time.Duration(0); ; {
		for {
			before := c.store.Changed()
			c.controller.Sync(c.t.Context())
			select {
			case <-before:
				continue
			default:
			}
			break
		}
		if elapsed >= d {
			return
		}
		step := min(time.Second, d-elapsed)
		elapsed += step
		c.clock.Advance(step)
	}
}

var api = apiserver.Key{Resource: apiserver.Rollouts, Namespace: "shop", Name: "api"}

func steps(weights ...int64) []any {
	var all []any
	for _, w := range weights {
		all = append(all, map[string]any{"setWeight": w}, map[string]any{"pause": map[string]any{}})
	}
	return all
}

// deploy creates the Rollout, or sets its image and steps.
func (c *cluster) deploy(image string, steps []any) {
	c.t.Helper()
	spec := map[string]any{
		"replicas": int64(4), "progressDeadlineSeconds": int64(30), "selector": map[string]any{"matchLabels": map[string]any{"app": "api"}},
		"strategy": map[string]any{"canary": map[string]any{"steps": steps}},
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "api", "image": image}}}},
	}
	var err error
	if c.store.Get(api) == nil {
		_, err = c.store.Create(apiserver.Rollouts, apiserver.Object{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "api", "namespace": "shop"}, "spec": spec,
		})
	} else {
		_, err = c.store.Modify(api, apiserver.Whole, func(o apiserver.Object) (apiserver.Object, error) {
			o["spec"] = spec
			return o, nil
		})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) patch(change func(apiserver.Object)) {
	c.t.Helper()
	if _, err := c.store.Modify(api, apiserver.Status, func(o apiserver.Object) (apiserver.Object, error) {
		change(o)
		return o, nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// promote does what kubectl argo rollouts promote does.
func (c *cluster) promote() {
	c.patch(func(o apiserver.Object) { o.Unset("status", "pauseConditions") })
}

// want compares phase, step and whether the version is the stable one.
func (c *cluster) want(phase string, step int64, stable bool, message string) {
	c.t.Helper()
	o := c.store.Get(api)
	index, _ := o.Number("status", "currentStepIndex")
	isStable := o.Text("status", "stableRS") == o.Text("status", "currentPodHash")
	got := fmt.Sprintf("%s at step %d, stable %v", o.Text("status", "phase"), index, isStable)
	if want := fmt.Sprintf("%s at step %d, stable %v", phase, step, stable); got != want {
		c.t.Fatalf("the rollout is %s, want %s; status %v", got, want, o["status"])
	}
	if !strings.Contains(o.Text("status", "message"), message) {
		c.t.Fatalf("message = %q, want %q", o.Text("status", "message"), message)
	}
	generation, _ := o.Number("metadata", "generation")
	if o.Text("status", "observedGeneration") != fmt.Sprint(generation) {
		c.t.Fatalf("generation %d is not observed: %q", generation, o.Text("status", "observedGeneration"))
	}
}

func (c *cluster) replicas() (updated, available int64) {
	o := c.store.Get(api)
	updated, _ = o.Number("status", "updatedReplicas")
	available, _ = o.Number("status", "availableReplicas")
	return updated, available
}

// stand deploys v1 for the first time.
func stand(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.deploy("v1", steps(25, 50, 100))
	c.settle(5 * time.Second)
	c.want("Healthy", 6, true, "")
	return c
}

func TestTheFirstDeploySkipsTheSteps(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.deploy("v1", steps(25, 50))
	c.settle(0)
	c.want("Progressing", 4, true, "updated replicas are still becoming available")
	c.settle(3 * time.Second)
	c.want("Healthy", 4, true, "")
	if updated, available := c.replicas(); updated != 4 || available != 4 {
		t.Errorf("%d updated, %d available, want 4 of each", updated, available)
	}
}

func TestACanaryStopsAtEveryPause(t *testing.T) {
	t.Parallel()
	c := stand(t)
	c.deploy("v2", steps(25, 50, 100))
	c.settle(0)
	c.want("Progressing", 0, false, "more replicas need to be updated")
	for i, replicas := range []int64{1, 2, 4} {
		c.settle(time.Minute) // however long it takes: it does not continue by itself
		c.want("Paused", int64(2*i+1), false, "CanaryPauseStep")
		if updated, _ := c.replicas(); updated != replicas {
			t.Errorf("%d replicas at pause %d, want %d", updated, i, replicas)
		}
		c.restart()
		c.promote()
	}
	c.settle(3 * time.Second)
	c.want("Healthy", 6, true, "")
}

func TestBackToTheStableVersionSkipsTheSteps(t *testing.T) {
	t.Parallel()
	c := stand(t)
	c.deploy("v2", steps(25, 50, 100))
	c.settle(5 * time.Second)
	c.want("Paused", 1, false, "CanaryPauseStep")
	c.deploy("v1", steps(25, 50, 100))
	c.settle(5 * time.Second)
	c.want("Healthy", 6, true, "")
}

func TestABadVersionRunsIntoItsDeadline(t *testing.T) {
	t.Parallel()
	c := stand(t)
	c.deploy("bad", steps(25, 50, 100))
	c.settle(5 * time.Second)
	c.want("Paused", 1, false, "CanaryPauseStep")
	c.promote()
	c.settle(20 * time.Second)
	c.want("Progressing", 2, false, "more replicas need to be updated")
	c.settle(15 * time.Second)
	c.want("Degraded", 2, false, "ProgressDeadlineExceeded: ReplicaSet")
	c.restart()
	c.settle(5 * time.Second)
	c.want("Degraded", 2, false, "ProgressDeadlineExceeded: ReplicaSet")
	c.deploy("v1", steps(25, 50, 100))
	c.settle(0)
	c.want("Progressing", 6, true, "")
	c.settle(5 * time.Second)
	c.want("Healthy", 6, true, "")
}

func TestAnImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	c := stand(t)
	c.deploy("missing", steps(25))
	c.settle(40 * time.Second)
	c.want("Degraded", 0, false, "ProgressDeadlineExceeded")
	c.images["missing"] = ""
	c.settle(5 * time.Second)
	c.want("Paused", 1, false, "CanaryPauseStep")
}

func TestAbortAndRetry(t *testing.T) {
	t.Parallel()
	c := stand(t)
	c.deploy("v2", steps(25, 50))
	c.settle(5 * time.Second)
	c.promote()
	c.settle(5 * time.Second)
	c.want("Paused", 3, false, "")
	c.patch(func(o apiserver.Object) { o.Set(true, "status", "abort") })
	c.settle(5 * time.Second)
	c.want("Degraded", 0, false, "RolloutAborted: Rollout aborted update to revision")
	if updated, available := c.replicas(); updated != 0 || available != 4 {
		t.Errorf("%d updated, %d available after the abort", updated, available)
	}
	c.patch(func(o apiserver.Object) { o.Set(false, "status", "abort") })
	c.settle(5 * time.Second)
	c.want("Paused", 1, false, "CanaryPauseStep")
}

func TestNewStepsStartOver(t *testing.T) {
	t.Parallel()
	c := stand(t)
	c.deploy("v2", steps(25, 50))
	c.settle(5 * time.Second)
	c.promote()
	c.settle(5 * time.Second)
	c.want("Paused", 3, false, "")
	c.deploy("v2", steps(10, 20))
	c.settle(5 * time.Second)
	c.want("Paused", 1, false, "")
}

func TestATimedPauseEnds(t *testing.T) {
	t.Parallel()
	c := stand(t)
	c.deploy("v2", []any{map[string]any{"setWeight": int64(25)}, map[string]any{"pause": map[string]any{"duration": "10s"}}})
	c.settle(5 * time.Second)
	c.want("Paused", 1, false, "")
	c.settle(15 * time.Second)
	c.want("Healthy", 2, true, "")
}

func TestASpecThatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.deploy("v1", nil)
	if _, err := c.store.Modify(api, apiserver.Whole, func(o apiserver.Object) (apiserver.Object, error) {
		o.Set(map[string]any{"blueGreen": map[string]any{}}, "spec", "strategy")
		return o, nil
	}); err != nil {
		t.Fatal(err)
	}
	c.settle(time.Second)
	o := c.store.Get(api)
	if o.Text("status", "phase") != "Degraded" || !strings.Contains(o.Text("status", "message"), "InvalidSpec") {
		t.Errorf("status = %v", o["status"])
	}
}

func TestReplicaSetsGoWithTheirRollout(t *testing.T) {
	t.Parallel()
	c := stand(t)
	if _, err := c.store.Delete(api, ""); err != nil {
		t.Fatal(err)
	}
	c.settle(0)
	if left, _ := c.store.List(apiserver.ReplicaSets, ""); len(left) != 0 {
		t.Errorf("%d replica sets are left", len(left))
	}
}
