package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// RolloutRequest holds the arguments of argo.promote, argo.abort and argo.retry.
type RolloutRequest struct {
	Ref Ref
	// Step is the pause that argo.promote ends, as an index into spec.strategy.canary.steps.
	Step int64
	// PodHash, if given, is the required revision of the Rollout.
	PodHash string
	// Held are the weights, in percent, that the Rollout must not leave.
	Held []int
}

// parseRollout parses the arguments that the three Functions share; only argo.promote has a step.
func parseRollout(raw json.RawMessage, withStep bool) (RolloutRequest, error) {
	a, err := readArgs(raw)
	if err != nil {
		return RolloutRequest{}, err
	}
	a.known["agent_id"] = true
	want := RolloutRequest{
		Ref:     Ref{Kind: rolloutKind, Namespace: a.name("rollout_namespace", true), Name: a.name("rollout_name", true)},
		PodHash: a.text("pod_hash", false),
	}
	if withStep {
		want.Step = a.number("step_index", 0)
	}
	a.rest()
	return want, a.err()
}

// NextPromotion decides how to end exactly the pause at the wanted step, and no other (E39). A Rollout past the step needs nothing:
// promoted is false, no matter what promoted it.
//
// It waits while the status is older than the spec, and while the pause is cleared but the controller has not moved on. The order of the
// cases makes "past it" win: a repeat of a successful promotion must find that, even if the Rollout has been aborted or paused by hand
// since (E24).
func NextPromotion(want RolloutRequest, observed Object) (Decision, error) {
	if waiting, err := checkRevision(want, observed); err != nil || waiting.Waiting != "" {
		return waiting, err
	}
	if observed.object("spec", "strategy", "blueGreen") != nil {
		return nextCutover(want, observed)
	}
	step, known := observed.number("status", "currentStepIndex")
	switch {
	case known && step > want.Step, isPromoted(observed):
		return Decision{Action: Done, Value: map[string]any{"promoted": false, "current_step_index": step}}, nil
	case observed.flag("status", "abort"):
		return Decision{}, conflict(want, "is aborted; expected it paused at step %d", want.Step)
	case observed.flag("spec", "paused"):
		return Decision{}, conflict(want, "is paused by hand (spec.paused); expected it paused at step %d", want.Step)
	case !known || step < want.Step:
		return Decision{}, conflict(want, "is at step %d; expected it paused at step %d", step, want.Step)
	}
	if err := checkPause(want, observed); err != nil {
		return Decision{}, err
	}
	reasons := pauseReasons(observed)
	if len(reasons) == 0 {
		return wait("the pause at step %d to begin, or to be left", want.Step), nil
	}
	// Clearing the conditions would also end a pause for another reason, such as an inconclusive analysis.
	if !slices.Contains(reasons, "CanaryPauseStep") {
		return Decision{}, conflict(want, "is paused at step %d for %v, not by the step itself", step, reasons)
	}
	if err := checkHeld(want, weightAt(observed, want.Step)); err != nil {
		return Decision{}, err
	}
	return patchStatus(observed, "pauseConditions", nil,
		map[string]any{"promoted": true, "current_step_index": step}), nil
}

// checkHeld refuses to end a pause at a weight if a weight up to it must not be left: the control plane decides who passes it (D46).
func checkHeld(want RolloutRequest, weight int64) error {
	for _, held := range want.Held {
		if int64(held) <= weight {
			return &Error{Code: CodeForbidden, Message: fmt.Sprintf(
				"%s is paused at %d %%, and the passage of weight %d has not been granted", want.Ref, weight, held)}
		}
	}
	return nil
}

// weightAt returns the weight of a canary at a step, in percent: that of the last step before it that sets one, 0 if none does.
func weightAt(observed Object, step int64) int64 {
	weight := int64(0)
	for i, s := range observed.list("spec", "strategy", "canary", "steps") {
		if int64(i) >= step {
			break
		}
		m, _ := s.(map[string]any)
		if set, sets := Object(m).number("setWeight"); sets {
			weight = set
		}
	}
	return weight
}

// NextAbort decides how to return a Rollout to its stable version (E73). One that is aborted, or whose new version is the stable one, needs
// nothing.
func NextAbort(want RolloutRequest, observed Object) (Decision, error) {
	if waiting, err := checkRevision(want, observed); err != nil || waiting.Waiting != "" {
		return waiting, err
	}
	if observed.flag("status", "abort") || isPromoted(observed) {
		return Decision{Action: Done, Value: map[string]any{"aborted": false}}, nil
	}
	return patchStatus(observed, "abort", true, map[string]any{"aborted": true}), nil
}

// NextRetry decides how to restart an aborted Rollout from its first step (E73). One that is not aborted needs nothing: an earlier attempt
// may have retried it, and it may have advanced since.
func NextRetry(want RolloutRequest, observed Object) (Decision, error) {
	if waiting, err := checkRevision(want, observed); err != nil || waiting.Waiting != "" {
		return waiting, err
	}
	if !observed.flag("status", "abort") {
		return Decision{Action: Done, Value: map[string]any{"retried": false}}, nil
	}
	return patchStatus(observed, "abort", false, map[string]any{"retried": true}), nil
}

// patchStatus returns the decision to set one field of the status, unless the object has changed since it was read; value is then the
// answer.
func patchStatus(observed Object, field string, to any, value map[string]any) Decision {
	return Decision{Action: Patch, Status: true, Value: value, Body: Object{
		"metadata": observed.precondition(),
		"status":   map[string]any{field: to},
	}}
}

// checkRevision refuses a Rollout that is absent, or at another revision than the required one. Its revision is known only from a status
// that is not older than the spec: until then the decision is to wait.
func checkRevision(want RolloutRequest, observed Object) (Decision, error) {
	if observed == nil {
		return Decision{}, &Error{Code: CodeNotFound, Message: want.Ref.String() + " does not exist"}
	}
	if isStale(observed) {
		return wait("its status to catch up with its spec"), nil
	}
	hash := observed.text("status", "currentPodHash")
	if want.PodHash != "" && hash != want.PodHash {
		return Decision{}, conflict(want, "is at pod hash %q; expected %q", hash, want.PodHash)
	}
	return Decision{}, nil
}

// isPromoted reports whether the newest version is the stable one: no step is left to pass or to abort.
func isPromoted(observed Object) bool {
	hash := observed.text("status", "currentPodHash")
	return hash != "" && hash == observed.text("status", "stableRS")
}

// checkPause refuses a step that is not a pause.
func checkPause(want RolloutRequest, observed Object) error {
	steps := observed.list("spec", "strategy", "canary", "steps")
	if want.Step >= int64(len(steps)) {
		return conflict(want, "has %d canary steps; expected a pause at step %d", len(steps), want.Step)
	}
	step, _ := steps[want.Step].(map[string]any)
	if _, isPause := step["pause"]; !isPause {
		return conflict(want, "has no pause at step %d but %s", want.Step, describe(step))
	}
	return nil
}

// isStale reports whether the controller has not yet seen the present spec (D11). It writes the generation as text.
func isStale(observed Object) bool {
	generation, known := observed.number("metadata", "generation")
	seen := observed.at("status", "observedGeneration")
	if !known || seen == nil || seen == "" {
		return observed.object("status") == nil
	}
	if n, isNumber := observed.number("status", "observedGeneration"); isNumber {
		return n != generation
	}
	return seen != strconv.FormatInt(generation, 10)
}

// pauseReasons returns why the Rollout is paused, as reported by the controller. There may be several reasons.
func pauseReasons(observed Object) []string {
	var reasons []string
	for _, c := range observed.list("status", "pauseConditions") {
		m, _ := c.(map[string]any)
		reasons = append(reasons, Object(m).text("reason"))
	}
	return reasons
}

// conflict returns an error that is not retryable: the Rollout is not where the program expects it, which a retry does not change.
func conflict(want RolloutRequest, format string, args ...any) error {
	return &Error{Code: CodeConflict, Message: want.Ref.String() + " " + fmt.Sprintf(format, args...)}
}
