package core

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const steps = `"strategy":{"canary":{"steps":[{"setWeight":25},{"pause":{}},{"setWeight":50},{"pause":{}}]}}`

func TestNextPromotion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, rollout string
		step          int64
		podHash       string
		want          Action
		value         map[string]any
		waiting       string
		code          string
	}{
		{name: "absent", code: CodeNotFound},
		{
			name: "paused at the step", step: 1,
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":1,"currentPodHash":"new","stableRS":"old","pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
			want:    Patch, value: map[string]any{"promoted": true, "current_step_index": int64(1)},
		},
		{
			name: "past the step and paused at the next", step: 1,
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":3,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
			want:    Done, value: map[string]any{"promoted": false, "current_step_index": int64(3)},
		},
		{
			name: "past all steps", step: 3, podHash: "new",
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":4,"currentPodHash":"new","stableRS":"new"}}`,
			want:    Done, value: map[string]any{"promoted": false, "current_step_index": int64(4)},
		},
		{
			name: "not there yet", step: 3, code: CodeConflict,
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":1,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
		{
			name: "at the step, not paused", step: 1, want: Wait, waiting: "pause at step 1",
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":1}}`,
		},
		{
			name: "status older than the spec", step: 1, want: Wait, waiting: "catch up",
			rollout: `{"metadata":{"generation":3},"spec":{` + steps +
				`},"status":{"observedGeneration":"2","currentStepIndex":1,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
		{
			name: "status older than the spec, as a number", step: 1, want: Wait, waiting: "catch up",
			rollout: `{"metadata":{"generation":3},"spec":{` + steps + `},"status":{"observedGeneration":2,"currentStepIndex":3}}`,
		},
		{
			name: "status of this spec", step: 1, want: Patch, value: map[string]any{"promoted": true, "current_step_index": int64(1)},
			rollout: `{"metadata":{"generation":3},"spec":{` + steps +
				`},"status":{"observedGeneration":"3","currentStepIndex":1,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
		{
			name: "no status at all", step: 1, want: Wait, waiting: "catch up", rollout: `{"spec":{` + steps + `}}`,
		},
		{
			name: "another pod hash", step: 1, podHash: "newer", code: CodeConflict,
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":1,"currentPodHash":"new","pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
		{
			name: "aborted", step: 1, code: CodeConflict,
			rollout: `{"spec":{` + steps + `},"status":{"abort":true,"currentStepIndex":0}}`,
		},
		{
			name: "paused by hand", step: 1, code: CodeConflict,
			rollout: `{"spec":{"paused":true,` + steps + `},"status":{"currentStepIndex":1,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
		{
			name: "paused by an analysis", step: 1, code: CodeConflict,
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":1,"pauseConditions":[{"reason":"InconclusiveAnalysisRun"}]}}`,
		},
		{
			name: "the step is no pause", step: 2, code: CodeConflict,
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":2,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
		{
			name: "fewer steps than that", step: 9, code: CodeConflict,
			rollout: `{"spec":{` + steps + `},"status":{"currentStepIndex":9,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := RolloutRequest{Ref: Ref{Kind: rolloutKind, Namespace: "shop", Name: "api"}, Step: tc.step, PodHash: tc.podHash}
			got, err := NextPromotion(want, object(t, tc.rollout))
			check(t, got, err, tc.want, tc.waiting, tc.code)
			if diff := cmp.Diff(tc.value, got.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPromotionClearsThePauseOnlyOfTheObjectItSaw(t *testing.T) {
	t.Parallel()
	got, err := NextPromotion(RolloutRequest{Step: 1}, object(t, `{"metadata":{"resourceVersion":"41"},"spec":{`+steps+`},
		"status":{"currentStepIndex":1,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Object{"metadata": map[string]any{"resourceVersion": "41"}, "status": map[string]any{"pauseConditions": nil}}
	if diff := cmp.Diff(want, got.Body); diff != "" || !got.Status {
		t.Errorf("patch of the status: %v (-want +got):\n%s", got.Status, diff)
	}
}

func TestAbortAndRetry(t *testing.T) {
	t.Parallel()
	const (
		running  = `{"status":{"currentPodHash":"new","stableRS":"old"}}`
		aborted  = `{"status":{"abort":true,"currentPodHash":"new","stableRS":"old"}}`
		complete = `{"status":{"currentPodHash":"new","stableRS":"new"}}`
	)
	for _, tc := range []struct {
		name, rollout string
		next          func(RolloutRequest, Object) (Decision, error)
		want          Action
		value         map[string]any
		code          string
	}{
		{"abort", running, NextAbort, Patch, map[string]any{"aborted": true}, ""},
		{"abort twice", aborted, NextAbort, Done, map[string]any{"aborted": false}, ""},
		{"abort what is complete", complete, NextAbort, Done, map[string]any{"aborted": false}, ""},
		{"abort nothing", "", NextAbort, Done, nil, CodeNotFound},
		{"retry", aborted, NextRetry, Patch, map[string]any{"retried": true}, ""},
		{"retry what runs", running, NextRetry, Done, map[string]any{"retried": false}, ""},
		{"retry nothing", "", NextRetry, Done, nil, CodeNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.next(RolloutRequest{}, object(t, tc.rollout))
			check(t, got, err, tc.want, "", tc.code)
			if diff := cmp.Diff(tc.value, got.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
}

// A pause is not ended at a weight, or beyond one, whose passage has not been granted, whatever a program calls (D46).
func TestAHeldWeightIsNotLeft(t *testing.T) {
	t.Parallel()
	canary := func(step string) string {
		return `{"spec":{"strategy":{"canary":{"steps":[{"setWeight":25},{"pause":{}},{"setWeight":50},{"pause":{}}]}}},
			"status":{"currentStepIndex":` + step + `,"pauseConditions":[{"reason":"CanaryPauseStep"}]}}`
	}
	blueGreen := `{"spec":{"strategy":{"blueGreen":{}}},"status":{"currentPodHash":"new","pauseConditions":[{"reason":"BlueGreenPause"}]}}`
	for _, tc := range []struct {
		name, rollout, podHash string
		step                   int64
		held                   []int
		refused                bool
	}{
		{"nothing is held", canary("1"), "", 1, nil, false},
		{"its own weight", canary("1"), "", 1, []int{25, 50}, true},
		{"a later weight", canary("1"), "", 1, []int{50}, false},
		{"an earlier weight", canary("3"), "", 3, []int{25}, true},
		{"blue-green with a weight", blueGreen, "new", 0, []int{50}, true},
		{"blue-green without", blueGreen, "new", 0, nil, false},
	} {
		want := RolloutRequest{Ref: Ref{Kind: rolloutKind, Namespace: "shop", Name: "api"}, Step: tc.step, PodHash: tc.podHash, Held: tc.held}
		got, err := NextPromotion(want, object(t, tc.rollout))
		refusal, _ := errors.AsType[*Error](err)
		if tc.refused != (refusal != nil && refusal.Code == CodeForbidden) || tc.refused == (got.Action == Patch) {
			t.Errorf("%s: found %v, %v", tc.name, got.Action, err)
		}
	}
}
