package rollouts

import (
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// reasonBlueGreen is why a blue-green Rollout stands still before its promotion.
const reasonBlueGreen = "BlueGreenPause"

// blueGreen is the strategy, nil for a canary.
func (v *view) blueGreen() apiserver.Object { return v.rollout.Map("spec", "strategy", "blueGreen") }

// invalidBlueGreen says why a blue-green strategy cannot be carried out.
func (c *Controller) invalidBlueGreen(ro apiserver.Object) string {
	strategy := ro.Map("spec", "strategy", "blueGreen")
	services, _ := apiserver.ByKind("v1", "Service")
	for _, field := range []string{"activeService", "previewService"} {
		name := strategy.Text(field)
		if name == "" && field == "previewService" {
			continue
		}
		if c.Store.Get(apiserver.Key{Resource: services, Namespace: ro.Namespace(), Name: name}) == nil {
			return fmt.Sprintf("The Rollout %q is invalid: spec.strategy.blueGreen.%s: Invalid value: %q: service %q not found",
				ro.Name(), field, name, name)
		}
	}
	return ""
}

// twoColours is how many pods the new and the stable version have: both all of them, until one of them serves alone.
func (v *view) twoColours() (fresh, stable int64) {
	switch {
	case v.new.Text("blueGreen", "activeSelector") == v.hash:
		return v.replicas, 0
	case v.new.Flag("abort"):
		return 0, v.replicas
	default:
		return v.replicas, v.replicas
	}
}

// cutOver is advance for a blue-green Rollout: it pauses once the new version is ready, and switches when the pause is
// cleared, or at once where the strategy says so.
func (v *view) cutOver(rs *replicaSet) time.Duration {
	cleared := v.new.Flag("controllerPause") && len(v.new.List("pauseConditions")) == 0
	auto, set := v.blueGreen()["autoPromotionEnabled"].(bool)
	switch {
	case v.new.Text("stableRS") == "", v.new.Text("stableRS") == v.hash:
	case v.new.Flag("abort"):
		v.clearPause()
		if v.new.Text("abortedAt") == "" {
			v.new.Set(v.now.UTC().Format(time.RFC3339), "abortedAt")
		}
		return idle
	case v.new.Flag("promoteFull"), cleared:
	case v.rollout.Flag("spec", "paused") || rs.available < v.replicas || len(v.new.List("pauseConditions")) > 0:
		return idle
	case set && !auto:
		v.new.Set([]any{map[string]any{"reason": reasonBlueGreen, "startTime": v.now.UTC().Format(time.RFC3339)}}, "pauseConditions")
		v.new.Set(true, "controllerPause")
		return idle
	}
	v.clearPause()
	for _, field := range []string{"promoteFull", "abortedAt"} {
		v.new.Unset(field)
	}
	v.new.Set(v.hash, "stableRS")
	v.new.Set(v.hash, "blueGreen", "activeSelector")
	return idle
}

// cutOverPhase is why a blue-green Rollout without a pause is not healthy yet; "" when it is.
func (v *view) cutOverPhase() string {
	switch v.hash {
	case v.new.Text("blueGreen", "activeSelector"):
		return ""
	default:
		return "active service cutover pending"
	}
}
