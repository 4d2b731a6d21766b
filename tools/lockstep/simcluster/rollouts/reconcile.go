package rollouts

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// view is one look at a Rollout: what is wanted, and the status on its way from old to new.
type view struct {
	rollout  apiserver.Object
	replicas int64
	steps    []any
	hash     string
	stepHash string
	sets     map[string]*replicaSet
	old      apiserver.Object
	new      apiserver.Object
	now      time.Time
	// workload is the generation of the Deployment whose pods they are, "" for the Rollout's own.
	workload string
}

const reasonPause = "CanaryPauseStep"

// reconcile brings one Rollout one step on, in the order in which the real controller does, and writes its status once.
func (c *Controller) reconcile(ctx context.Context, ro apiserver.Object) (time.Duration, error) {
	ro, workload := c.resolve(ro)
	v := c.look(ro)
	v.workload = workload
	if problem := c.invalid(ro); problem != "" {
		return idle, c.refuse(v, problem)
	}
	if v.changed() {
		return 0, c.begin(v)
	}
	if v.sets[v.hash] == nil {
		return 0, c.create(ro, v.hash)
	}
	rest, err := c.pods(ctx, v)
	if err != nil {
		return rest, err
	}
	wait := v.advance(c)
	return min(rest, wait, c.deadline(v)), c.persist(v)
}

func (c *Controller) look(ro apiserver.Object) *view {
	v := &view{
		rollout: ro, replicas: 1, steps: ro.List("spec", "strategy", "canary", "steps"),
		hash: hashOf(ro.At("spec", "template")), sets: c.replicaSets(ro), now: c.Clock.Now(),
		old: ro.Map("status"), new: apiserver.Object{},
	}
	if v.blueGreen() == nil {
		v.stepHash = hashOf(v.steps)
	}
	if n, ok := ro.Number("spec", "replicas"); ok {
		v.replicas = n
	}
	if status := ro.Map("status"); status != nil {
		v.new = status.Copy()
	} else {
		v.old = apiserver.Object{}
	}
	return v
}

// invalid says why a spec cannot be carried out.
func (c *Controller) invalid(ro apiserver.Object) string {
	switch {
	case ro.Map("spec", "template") == nil:
		return "The Rollout \"" + ro.Name() + "\" is invalid: spec.template: Required value: Rollout has missing field '.spec.template'"
	case ro.Map("spec", "selector") == nil:
		return "The Rollout \"" + ro.Name() + "\" is invalid: spec.selector: Required value: Rollout has missing field '.spec.selector'"
	case ro.Map("spec", "strategy", "blueGreen") != nil:
		return c.invalidBlueGreen(ro)
	case ro.Map("spec", "strategy", "canary") == nil:
		return "The Rollout \"" + ro.Name() + "\" is invalid: spec.strategy.strategy: Required value: Rollout has missing field '.spec.strategy.canary or .spec.strategy.blueGreen'"
	default:
		return ""
	}
}

func (c *Controller) refuse(v *view, problem string) error {
	v.setCondition("InvalidSpec", "True", "InvalidSpec", problem)
	return c.persist(v)
}

// changed reports whether the template or the steps are others than those of the status.
func (v *view) changed() bool {
	return v.old.Text("currentPodHash") != v.hash || v.old.Text("currentStepHash") != v.stepHash
}

func (v *view) stepCount() int64 { return int64(len(v.steps)) }

func (v *view) index() int64 {
	n, _ := v.new.Number("currentStepIndex")
	return n
}

func (v *view) setIndex(n int64) {
	if v.stepCount() == 0 {
		v.new.Unset("currentStepIndex")
		return
	}
	v.new.Set(n, "currentStepIndex")
}

// begin starts over with a new template or new steps. A rollback to the stable version skips the steps.
func (c *Controller) begin(v *view) error {
	v.clearPause()
	v.new.Unset("abort")
	v.new.Unset("abortedAt")
	v.new.Unset("promoteFull")
	v.new.Set(v.hash, "currentPodHash")
	v.new.Set(v.stepHash, "currentStepHash")
	v.setIndex(0)
	if v.new.Text("stableRS") == v.hash {
		v.setIndex(v.stepCount())
	}
	v.dropCondition("InvalidSpec")
	c.progress(v, "ReplicaSetUpdated")
	v.count()
	return c.persist(v)
}

// pods scales and observes the versions.
func (c *Controller) pods(ctx context.Context, v *view) (time.Duration, error) {
	weight := v.weight()
	canary, stable := split(v.replicas, weight, v.rollout.Map("spec", "strategy", "canary", "trafficRouting") != nil)
	if v.blueGreen() != nil {
		canary, stable = v.twoColours()
		weight = 100
	}
	if v.new.Text("stableRS") == v.hash || v.new.Text("stableRS") == "" {
		canary, stable, weight = v.replicas, 0, 100
	}
	rest := idle
	for _, rs := range v.sets {
		desired, share := int64(0), int64(0)
		switch rs.hash {
		case v.hash:
			desired, share = canary, weight
		case v.new.Text("stableRS"):
			desired = stable
		}
		if !v.rollout.Flag("spec", "paused") || v.new.Text("stableRS") == "" {
			if err := c.scale(rs, desired); err != nil {
				return rest, err
			}
		}
		again, err := c.observe(ctx, rs, share)
		if err != nil {
			return rest, err
		}
		rest = min(rest, again)
	}
	v.count()
	return rest, nil
}

// weight is the share of the traffic that the steps so far have given to the new version.
func (v *view) weight() int64 {
	if v.new.Flag("abort") {
		return 0
	}
	if v.index() >= v.stepCount() {
		return 100
	}
	weight := int64(0)
	for _, s := range v.steps[:v.index()+1] {
		if n, ok := apiserver.Object(asMap(s)).Number("setWeight"); ok {
			weight = n
		}
	}
	return weight
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// count sums the pods up in the status.
func (v *view) count() {
	var all, available, updated int64
	for _, rs := range v.sets {
		all += rs.desired
		available += rs.available
		if rs.hash == v.hash {
			updated = rs.desired
		}
	}
	// What a blue-green Rollout has available is what serves.
	if serving := v.sets[v.new.Text("blueGreen", "activeSelector")]; v.blueGreen() != nil && serving != nil {
		available = serving.available
	}
	v.new.Set(all, "replicas")
	v.new.Set(updated, "updatedReplicas")
	v.new.Set(available, "readyReplicas")
	v.new.Set(available, "availableReplicas")
	v.new.Set(all, "HPAReplicas")
}

// advance promotes, pauses or goes to the next step, and answers when a timed pause ends.
func (v *view) advance(c *Controller) time.Duration {
	rs := v.sets[v.hash]
	if v.blueGreen() != nil {
		return v.cutOver(rs)
	}
	aborted, full := v.new.Flag("abort"), v.new.Flag("promoteFull")
	ready := rs.available >= v.replicas
	if full {
		v.clearPause()
		v.setIndex(v.stepCount())
	}
	switch {
	case v.new.Text("stableRS") == "", !aborted && ready && v.new.Text("stableRS") == v.hash, !aborted && ready && v.index() >= v.stepCount():
		v.clearPause()
		v.new.Unset("promoteFull")
		v.new.Set(v.hash, "stableRS")
		v.setIndex(v.stepCount())
		return idle
	case aborted:
		v.clearPause()
		v.new.Unset("promoteFull")
		v.setIndex(0)
		if v.new.Text("stableRS") == v.hash {
			v.setIndex(v.stepCount())
		}
		if v.new.Text("abortedAt") == "" {
			v.new.Set(v.now.UTC().Format(time.RFC3339), "abortedAt")
		}
		return idle
	case v.rollout.Flag("spec", "paused") || v.index() >= v.stepCount():
		return idle
	}
	v.new.Unset("abortedAt")
	return v.step(c, rs)
}

// step carries out the present step.
func (v *view) step(c *Controller, rs *replicaSet) time.Duration {
	step := asMap(v.steps[v.index()])
	pause, isPause := step["pause"]
	if !isPause {
		canary, _ := split(v.replicas, v.weight(), false)
		if rs.desired >= canary && rs.available >= canary {
			v.setIndex(v.index() + 1)
			return 0
		}
		return idle
	}
	started := v.pausedSince()
	switch {
	case v.new.Flag("controllerPause") && started == nil: // a client has cleared the condition: that ends a pause
		v.clearPause()
		v.setIndex(v.index() + 1)
		return 0
	case started == nil:
		v.new.Set([]any{map[string]any{"reason": reasonPause, "startTime": v.now.UTC().Format(time.RFC3339)}}, "pauseConditions")
		v.new.Set(true, "controllerPause")
		return idle
	}
	length, isTimed := duration(asMap(pause)["duration"])
	if !isTimed {
		return idle
	}
	left := started.Add(c.real(length)).Sub(v.now)
	if left <= 0 {
		v.clearPause()
		v.setIndex(v.index() + 1)
		return 0
	}
	return left
}

func (v *view) pausedSince() *time.Time {
	for _, condition := range v.new.List("pauseConditions") {
		if m := asMap(condition); m["reason"] == reasonPause {
			text, _ := m["startTime"].(string)
			at, _ := time.Parse(time.RFC3339, text) // text that cannot be parsed counts as long ago
			return &at
		}
	}
	return nil
}

func (v *view) clearPause() {
	v.new.Unset("pauseConditions")
	v.new.Unset("controllerPause")
}

// duration reads a pause's length: seconds, or text such as 30s or 1h.
func duration(v any) (time.Duration, bool) {
	switch v := v.(type) {
	case int64:
		return time.Duration(v) * time.Second, true
	case string:
		if seconds, err := strconv.ParseInt(v, 10, 64); err == nil {
			return time.Duration(seconds) * time.Second, true
		}
		d, err := time.ParseDuration(v)
		return d, err == nil
	default:
		return 0, false
	}
}

// persist writes the status, if it has changed. The object must be the one that was looked at.
func (c *Controller) persist(v *view) error {
	v.new.Set(strconv.FormatInt(v.generation(), 10), "observedGeneration")
	if v.workload != "" {
		v.new.Set(v.workload, "workloadObservedGeneration")
	}
	c.conditions(v)
	phase, message := v.phase()
	v.new.Set(phase, "phase")
	v.new.Set(message, "message")
	if message == "" {
		v.new.Unset("message")
	}
	o := v.rollout.Copy()
	o["status"] = map[string]any(v.new)
	if _, err := c.Store.Update(apiserver.Rollouts, o, apiserver.Status); err != nil {
		return fmt.Errorf("status of rollout %s/%s: %w", o.Namespace(), o.Name(), err)
	}
	return nil
}

func (v *view) generation() int64 {
	n, _ := v.rollout.Number("metadata", "generation")
	return n
}
