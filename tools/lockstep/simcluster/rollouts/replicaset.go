package rollouts

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

const (
	hashLabel = "rollouts-pod-template-hash"
	// readyAt is when the pods asked for last become available. It is the simulation's own.
	readyAt = "simulated.lockstep.dev/ready-at"
	// SimulateLabel is the label of an image's configuration that says how its pods behave: degraded-at=<weight> has
	// them fail from that share of the traffic on.
	SimulateLabel = "lockstep.dev/simulate"
)

// hashOf is a short stable name of a value, in the alphabet that Kubernetes names may have.
func hashOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Append(nil, v)
	}
	h := fnv.New32a()
	_, _ = h.Write(text) // does not fail
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	var b strings.Builder
	for _, r := range strconv.FormatUint(uint64(h.Sum32()), 10) {
		b.WriteByte(alphabet[int(r)%len(alphabet)])
	}
	return b.String()
}

// replicaSet is one version's pods.
type replicaSet struct {
	key       apiserver.Key
	hash      string
	desired   int64
	available int64
	readyAt   time.Time
	images    []string
}

// replicaSets are those of a Rollout, by hash.
func (c *Controller) replicaSets(ro apiserver.Object) map[string]*replicaSet {
	found := map[string]*replicaSet{}
	all, _ := c.Store.List(apiserver.ReplicaSets, ro.Namespace())
	for _, o := range all {
		owners := o.List("metadata", "ownerReferences")
		if len(owners) != 1 {
			continue
		}
		if owner, ok := owners[0].(map[string]any); !ok || owner["uid"] != ro.Text("metadata", "uid") {
			continue
		}
		rs := &replicaSet{
			key:    apiserver.Key{Resource: apiserver.ReplicaSets, Namespace: o.Namespace(), Name: o.Name()},
			hash:   o.Text("metadata", "labels", hashLabel),
			images: images(o.Map("spec", "template")),
		}
		rs.desired, _ = o.Number("spec", "replicas")
		rs.available, _ = o.Number("status", "availableReplicas")
		rs.readyAt, _ = time.Parse(time.RFC3339Nano, o.Text("metadata", "annotations", readyAt)) // absent is long ago
		found[rs.hash] = rs
	}
	return found
}

func images(template apiserver.Object) []string {
	var found []string
	for _, container := range template.List("spec", "containers") {
		if m, ok := container.(map[string]any); ok {
			if image, ok := m["image"].(string); ok {
				found = append(found, image)
			}
		}
	}
	return found
}

// create makes the ReplicaSet of a version, without pods yet.
func (c *Controller) create(ro apiserver.Object, hash string) error {
	template := ro.Map("spec", "template").Copy()
	template.Set(hash, "metadata", "labels", hashLabel)
	o := apiserver.Object{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{
			"name": ro.Name() + "-" + hash, "namespace": ro.Namespace(),
			"labels": map[string]any{hashLabel: hash},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": ro.Name(), "uid": ro.Text("metadata", "uid"),
				"controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": map[string]any{"replicas": int64(0), "template": map[string]any(template)},
	}
	_, err := c.Store.Create(apiserver.ReplicaSets, o)
	if apiserver.Is(err, "AlreadyExists") {
		return nil
	}
	return err
}

// scale asks for pods. New ones take their time.
func (c *Controller) scale(rs *replicaSet, desired int64) error {
	if rs.desired == desired {
		return nil
	}
	up := desired > rs.desired
	rs.desired = desired
	if up {
		rs.readyAt = c.Clock.Now().Add(c.real(podStart))
	}
	_, err := c.Store.Modify(rs.key, apiserver.Whole, func(o apiserver.Object) (apiserver.Object, error) {
		o.Set(desired, "spec", "replicas")
		o.Set(rs.readyAt.UTC().Format(time.RFC3339Nano), "metadata", "annotations", readyAt)
		return o, nil
	})
	return err
}

// observe says how many pods are available, and when that may change.
func (c *Controller) observe(ctx context.Context, rs *replicaSet, weight int64) (time.Duration, error) {
	available, again := rs.desired, idle
	switch left := rs.readyAt.Sub(c.Clock.Now()); {
	case rs.desired > 0 && c.fails(ctx, rs, weight):
		available = 0
	case left > 0:
		available, again = min(rs.available, rs.desired), left
	}
	rs.available = available
	_, err := c.Store.Modify(rs.key, apiserver.Status, func(o apiserver.Object) (apiserver.Object, error) {
		o["status"] = map[string]any{
			"replicas": rs.desired, "readyReplicas": available, "availableReplicas": available, "observedGeneration": o.At("metadata", "generation"),
		}
		return o, nil
	})
	return again, err
}

// fails reports whether the pods of a version do not come up at a share of the traffic.
func (c *Controller) fails(ctx context.Context, rs *replicaSet, weight int64) bool {
	for _, image := range rs.images {
		labels, err := c.Images.Labels(ctx, image)
		if err != nil {
			c.Log.WarnContext(ctx, "image cannot be pulled", "image", image, telemetry.KeyError, err.Error())
			return true
		}
		at, isSet := strings.CutPrefix(labels[SimulateLabel], "degraded-at=")
		if !isSet {
			continue
		}
		if from, err := strconv.ParseInt(at, 10, 64); err == nil && weight >= from {
			return true
		}
	}
	return false
}

// split is how many pods the new and the stable version have at a weight.
func split(replicas, weight int64, trafficRouting bool) (canary, stable int64) {
	canary = int64(math.Ceil(float64(replicas*weight) / 100))
	if trafficRouting {
		return canary, replicas
	}
	stable = replicas - canary
	if stable == 0 && weight < 100 && replicas > 0 {
		stable = 1 // one more than wanted, rather than none of the version that works
	}
	return canary, stable
}
