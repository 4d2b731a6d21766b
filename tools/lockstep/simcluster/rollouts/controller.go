// Package rollouts behaves like the Argo Rollouts controller (v1.10) on the Rollout objects of a simulated cluster: canary
// steps, pauses and how they are left, abort and retry, the first deploy, the rollback to the stable version, the progress
// deadline; and blue-green: the pause before the promotion, and the cutover. ReplicaSets are kept as objects, and pods become ready by the
// clock.
//
// It is a simulation: no pods, no traffic, no analysis, no delay before old pods go. What it copies of the real controller is what a
// client can see in the status, and in which order.
package rollouts

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// Deps are what a Controller needs.
type Deps struct {
	Store *apiserver.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Images says how an image behaves.
	Images Images
	// Speed is how many seconds pass in the cluster for one of the clock's; 0 is 1.
	Speed float64
}

// Images answers the labels of an image's configuration. An error is an image that cannot be pulled.
type Images interface {
	Labels(ctx context.Context, reference string) (map[string]string, error)
}

// Controller reconciles Rollouts.
type Controller struct {
	Deps
	// progressed is when a Rollout last came on, by uid. Conditions hold the same, cut to seconds.
	progressed map[string]time.Time
}

// podStart is how long a pod takes to become available, in the cluster's time.
const podStart = 2 * time.Second

// idle is the longest the controller rests without a change.
const idle = time.Second

// New makes a controller.
func New(d Deps) *Controller {
	if d.Speed <= 0 {
		d.Speed = 1
	}
	return &Controller{Deps: d, progressed: map[string]time.Time{}}
}

// real is how long the clock takes for a while in the cluster.
func (c *Controller) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.Speed)
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := c.Store.Changed()
		rest := c.Sync(ctx)
		timer := c.Clock.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
	return nil
}

// Sync brings every Rollout one step on, and answers when to look again at the latest.
func (c *Controller) Sync(ctx context.Context) time.Duration {
	if c.Store.ScaledToZero(apiserver.Key{Resource: apiserver.Deployments, Namespace: "argo-rollouts", Name: "argo-rollouts"}) {
		return idle
	}
	all, _ := c.Store.List(apiserver.Rollouts, "")
	c.collect(all)
	rest := idle
	for _, o := range all {
		again, err := c.reconcile(ctx, o)
		switch {
		case apiserver.Is(err, "Conflict"), apiserver.Is(err, "NotFound"):
			again = 0 // another client was faster: read it again
		case err != nil:
			c.Log.ErrorContext(ctx, "rollout cannot be reconciled", "rollout", o.Namespace()+"/"+o.Name(), telemetry.KeyError, err.Error())
		}
		rest = min(rest, max(again, time.Millisecond))
	}
	return rest
}

// collect removes the ReplicaSets of Rollouts that are gone, in place of Kubernetes' garbage collector.
func (c *Controller) collect(rollouts []apiserver.Object) {
	alive := map[string]bool{}
	for _, o := range rollouts {
		alive[o.Text("metadata", "uid")] = true
	}
	sets, _ := c.Store.List(apiserver.ReplicaSets, "")
	for _, o := range sets {
		for _, owner := range o.List("metadata", "ownerReferences") {
			m := asMap(owner)
			uid, _ := m["uid"].(string)
			if m["kind"] == "Rollout" && !alive[uid] {
				k := apiserver.Key{Resource: apiserver.ReplicaSets, Namespace: o.Namespace(), Name: o.Name()}
				if _, err := c.Store.Delete(k, ""); err == nil {
					delete(c.progressed, uid)
				}
			}
		}
	}
}
