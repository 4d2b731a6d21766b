package core

import "slices"

// pauseBlueGreen is the reason of the pause before a blue-green Rollout sends traffic to its new version.
const pauseBlueGreen = "BlueGreenPause"

// nextCutover is NextPromotion for a blue-green Rollout, which has one pause and no steps: the pause counts as step 0, and everything after
// it as step 1. Since there is no step to distinguish one pause from the next, the pod hash is required (E28, E39).
func nextCutover(want RolloutRequest, observed Object) (Decision, error) {
	hash := observed.text("status", "currentPodHash")
	switch {
	case want.PodHash == "":
		return Decision{}, conflict(want, "is blue-green; expected the pod_hash of the version to promote")
	case want.Step != 0:
		return Decision{}, conflict(want, "is blue-green and has one pause, step 0; expected that, found step %d", want.Step)
	// The service is switched before the new version counts as stable.
	case isPromoted(observed), observed.text("status", "blueGreen", "activeSelector") == hash:
		return Decision{Action: Done, Value: map[string]any{"promoted": false, "current_step_index": int64(1)}}, nil
	case observed.flag("status", "abort"):
		return Decision{}, conflict(want, "is aborted; expected it paused before its promotion")
	case observed.flag("spec", "paused"):
		return Decision{}, conflict(want, "is paused by hand (spec.paused); expected it paused before its promotion")
	}
	reasons := pauseReasons(observed)
	if len(reasons) == 0 {
		return wait("the pause before its promotion to begin, or to be left"), nil
	}
	if !slices.Contains(reasons, pauseBlueGreen) {
		return Decision{}, conflict(want, "is paused for %v, not before its promotion", reasons)
	}
	const all = 100
	if err := checkHeld(want, all); err != nil {
		return Decision{}, err
	}
	return patchStatus(observed, "pauseConditions", nil, map[string]any{"promoted": true, "current_step_index": int64(0)}), nil
}
