package rollouts

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// defaultDeadline is Argo Rollouts' own, in seconds of the cluster.
const defaultDeadline = 600

// phase sums the status up, as Argo Rollouts does.
func (v *view) phase() (phase, message string) {
	for _, c := range v.new.List("conditions") {
		m := asMap(c)
		switch {
		case m["type"] == "InvalidSpec":
			return "Degraded", fmt.Sprintf("InvalidSpec: %v", m["message"])
		case m["reason"] == "RolloutAborted", m["reason"] == "ProgressDeadlineExceeded":
			return "Degraded", fmt.Sprintf("%v: %v", m["reason"], m["message"])
		}
	}
	if v.rollout.Flag("spec", "paused") {
		return "Paused", "manually paused"
	}
	for _, c := range v.new.List("pauseConditions") {
		return "Paused", fmt.Sprint(asMap(c)["reason"])
	}
	updated, _ := v.new.Number("updatedReplicas")
	available, _ := v.new.Number("availableReplicas")
	all, _ := v.new.Number("replicas")
	switch {
	case updated < v.replicas:
		return "Progressing", "more replicas need to be updated"
	case available < updated:
		return "Progressing", "updated replicas are still becoming available"
	case v.blueGreen() != nil && v.cutOverPhase() != "":
		return "Progressing", v.cutOverPhase()
	case v.blueGreen() == nil && v.rollout.Map("spec", "strategy", "canary", "trafficRouting") == nil && all > updated:
		return "Progressing", "old replicas are pending termination"
	case v.new.Text("stableRS") == "" || v.new.Text("stableRS") != v.new.Text("currentPodHash"):
		return "Progressing", "waiting for all steps to complete"
	default:
		return "Healthy", ""
	}
}

// healthy is what Argo Rollouts calls so in its conditions.
func (v *view) healthy() bool {
	updated, _ := v.new.Number("updatedReplicas")
	available, _ := v.new.Number("availableReplicas")
	all, _ := v.new.Number("replicas")
	return updated == v.replicas && available == v.replicas && (all == v.replicas || v.blueGreen() != nil) &&
		v.new.Text("stableRS") == v.hash && (v.stepCount() == 0 || v.index() == v.stepCount()) &&
		v.old.Text("observedGeneration") == strconv.FormatInt(v.generation(), 10)
}

// conditions brings the conditions up to date with the rest of the status.
func (c *Controller) conditions(v *view) {
	name := v.rollout.Name() + "-" + v.hash
	paused := len(v.new.List("pauseConditions")) > 0 || v.rollout.Flag("spec", "paused")
	v.setCondition("Healthy", truth(!paused && v.healthy()), "RolloutHealthy", "Rollout is "+negated(!paused && v.healthy())+"healthy")
	v.setCondition("Paused", truth(paused), "RolloutPaused", "Rollout is "+negated(paused)+"paused")
	available, _ := v.new.Number("availableReplicas")
	v.setCondition("Available", truth(available >= v.replicas), "AvailableReason",
		"Rollout "+map[bool]string{true: "has", false: "does not have"}[available >= v.replicas]+" minimum availability")
	completed := v.new.Text("stableRS") != "" && v.new.Text("stableRS") == v.hash
	v.setCondition("Completed", truth(completed), "RolloutCompleted", "RolloutCompleted")
	current := v.condition("Progressing")
	switch {
	case v.new.Flag("abort"):
		v.setCondition("Progressing", "False", "RolloutAborted", "Rollout aborted update to revision "+strconv.FormatInt(v.generation(), 10))
	case v.healthy():
		v.setCondition("Progressing", "True", "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", name))
		c.progressed[v.rollout.Text("metadata", "uid")] = v.now
	case current["reason"] == "RolloutAborted":
		c.progress(v, "RolloutRetry")
	case v.hasProgressed():
		c.progress(v, "ReplicaSetUpdated")
	case !v.atPause() && !paused && c.deadline(v) <= 0:
		v.setCondition("Progressing", "False", "ProgressDeadlineExceeded", fmt.Sprintf("ReplicaSet %q has timed out progressing.", name))
	}
}

func truth(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func negated(b bool) string {
	if b {
		return ""
	}
	return "not "
}

// hasProgressed reports whether anything in the status shows progress.
func (v *view) hasProgressed() bool {
	for _, field := range []string{"stableRS", "currentStepHash", "currentPodHash", "currentStepIndex", "updatedReplicas", "blueGreen"} {
		if !reflect.DeepEqual(v.old[field], v.new[field]) {
			return true
		}
	}
	before, _ := v.old.Number("availableReplicas")
	after, _ := v.new.Number("availableReplicas")
	return after > before
}

// atPause reports whether the present step may take as long as it likes.
func (v *view) atPause() bool {
	if v.blueGreen() != nil {
		return len(v.new.List("pauseConditions")) > 0
	}
	if v.index() >= v.stepCount() {
		return false
	}
	_, isPause := asMap(v.steps[v.index()])["pause"]
	return isPause
}

func (c *Controller) progress(v *view, reason string) {
	c.progressed[v.rollout.Text("metadata", "uid")] = v.now
	v.setCondition("Progressing", "True", reason, fmt.Sprintf("ReplicaSet %q is progressing.", v.rollout.Name()+"-"+v.hash))
}

// deadline is how long the clock takes until the progress deadline. One that has passed does not pass again.
func (c *Controller) deadline(v *view) time.Duration {
	if v.healthy() || v.atPause() || v.condition("Progressing")["reason"] == "ProgressDeadlineExceeded" {
		return idle
	}
	seconds, ok := v.rollout.Number("spec", "progressDeadlineSeconds")
	if !ok {
		seconds = defaultDeadline
	}
	since, known := c.progressed[v.rollout.Text("metadata", "uid")]
	if !known { // this process has not seen it: take what the last one has written
		text, _ := v.condition("Progressing")["lastUpdateTime"].(string)
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return idle
		}
		since = at
	}
	return since.Add(c.real(time.Duration(seconds) * time.Second)).Sub(v.now)
}

func (v *view) condition(kind string) map[string]any {
	for _, c := range v.new.List("conditions") {
		if m := asMap(c); m["type"] == kind {
			return m
		}
	}
	return nil
}

func (v *view) dropCondition(kind string) {
	v.new.Set(slices.DeleteFunc(slices.Clone(v.new.List("conditions")), func(c any) bool { return asMap(c)["type"] == kind }), "conditions")
}

// setCondition writes a condition. Its times change as the API's conventions have it: the update time with any change
// and with every progress, the transition time with the status.
func (v *view) setCondition(kind, status, reason, message string) {
	now := v.now.UTC().Format(time.RFC3339)
	next := map[string]any{
		"type": kind, "status": status, "reason": reason, "message": message, "lastUpdateTime": now,
		"lastTransitionTime": now,
	}
	old := v.condition(kind)
	if old != nil {
		if old["status"] == status && old["reason"] == reason && kind != "Progressing" {
			return
		}
		if old["status"] == status && old["reason"] == reason && old["message"] == message && reason != "ReplicaSetUpdated" {
			return
		}
		if old["status"] == status {
			next["lastTransitionTime"] = old["lastTransitionTime"]
		}
	}
	v.dropCondition(kind)
	v.new.Set(append(v.new.List("conditions"), any(next)), "conditions")
}
