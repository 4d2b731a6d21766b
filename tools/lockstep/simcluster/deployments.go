package simcluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/rollouts"
)

// deploymentController brings Deployments up.
type deploymentController struct {
	store  *apiserver.Store
	images rollouts.Images
	// registry is the one whose images are looked at however they are given.
	registry string
	clock    clock.Clock
	log      *slog.Logger
}

// run has every Deployment come up at once, or not at all, as Kubernetes' controller would bring about after a while. All of its
// pods are of the new version, so that an image that fails from a weight on fails whatever the weight is.
func (c deploymentController) run(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := c.store.Changed()
		all, _ := c.store.List(apiserver.Deployments, "")
		for _, o := range all {
			if err := c.runOne(ctx, o); err != nil {
				return err
			}
		}
		timer := c.clock.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
	return nil
}

// runOne writes the status of a Deployment that is newer than its status. One whose status was written by a client without a
// generation stays as it is, so that a test can take a controller away.
func (c deploymentController) runOne(ctx context.Context, o apiserver.Object) error {
	generation, _ := o.Number("metadata", "generation")
	observed, written := o.Number("status", "observedGeneration")
	if o.Map("status") != nil && (!written || observed >= generation) {
		return nil
	}
	fails, err := c.failing(ctx, o)
	if err != nil {
		c.log.WarnContext(ctx, "image cannot be pulled", "deployment", o.Name(), telemetry.KeyError, err.Error())
		return nil // pods of a version that cannot be pulled do not come up; the next look tries again
	}
	_, err = c.store.Modify(apiserver.Key{Resource: apiserver.Deployments, Namespace: o.Namespace(), Name: o.Name()}, apiserver.Status,
		func(now apiserver.Object) (apiserver.Object, error) {
			if newer, _ := now.Number("metadata", "generation"); newer == generation {
				now["status"] = statusOfDeployment(now, fails)
			}
			return now, nil
		})
	if err != nil && !apiserver.Is(err, "NotFound") {
		return fmt.Errorf("status of Deployment %s: %w", o.Name(), err)
	}
	return nil
}

// statusOfDeployment is what Kubernetes' controller would say of a Deployment in the end.
func statusOfDeployment(o apiserver.Object, fails bool) map[string]any {
	replicas, given := o.Number("spec", "replicas")
	if !given {
		replicas = 1
	}
	generation, _ := o.Number("metadata", "generation")
	condition := func(kind, status, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
	}
	if fails && replicas > 0 {
		return map[string]any{
			"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "unavailableReplicas": replicas,
			"conditions": []any{
				condition("Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
				condition("Progressing", "False", "ProgressDeadlineExceeded", "ReplicaSet of "+o.Name()+" has timed out progressing."),
			},
		}
	}
	return map[string]any{
		"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
		"conditions": []any{
			condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition("Progressing", "True", "NewReplicaSetAvailable", "ReplicaSet of "+o.Name()+" has successfully progressed."),
		},
	}
}

// failing reports whether the pods of a Deployment do not come up. Images are looked at that are given by digest, and all of
// our own registry: others may not be there at all.
func (c deploymentController) failing(ctx context.Context, o apiserver.Object) (bool, error) {
	for _, container := range o.List("spec", "template", "spec", "containers") {
		m, _ := container.(map[string]any)
		image, _ := m["image"].(string)
		if own := c.registry != "" && strings.HasPrefix(image, c.registry+"/"); !own && !strings.Contains(image, "@sha256:") {
			continue
		}
		labels, err := c.images.Labels(ctx, image)
		if err != nil {
			return false, err
		}
		if strings.HasPrefix(labels[rollouts.SimulateLabel], "degraded-at=") {
			return true, nil
		}
	}
	return false, nil
}
