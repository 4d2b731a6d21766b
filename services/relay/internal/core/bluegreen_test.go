package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCutoverOfABlueGreenRollout(t *testing.T) {
	t.Parallel()
	const spec = `"spec":{"strategy":{"blueGreen":{"activeService":"api"}}}`
	done := map[string]any{"promoted": false, "current_step_index": int64(1)}
	for _, tc := range []struct {
		name, rollout string
		step          int64
		want          Action
		value         map[string]any
		waiting, code string
	}{
		{
			name: "paused before it", want: Patch, value: map[string]any{"promoted": true, "current_step_index": int64(0)},
			rollout: `{` + spec + `,"status":{"currentPodHash":"new","stableRS":"old","pauseConditions":[{"reason":"BlueGreenPause"}]}}`,
		},
		{name: "past it", want: Done, value: done, rollout: `{` + spec + `,"status":{"currentPodHash":"new","stableRS":"new"}}`},
		{
			name: "past it, and not stable yet", want: Done, value: done,
			rollout: `{` + spec + `,"status":{"currentPodHash":"new","stableRS":"old","blueGreen":{"activeSelector":"new"}}}`,
		},
		{
			name: "not paused yet", want: Wait, waiting: "the pause before its promotion",
			rollout: `{` + spec + `,"status":{"currentPodHash":"new","stableRS":"old"}}`,
		},
		{
			name: "another version", code: CodeConflict,
			rollout: `{` + spec + `,"status":{"currentPodHash":"newer","pauseConditions":[{"reason":"BlueGreenPause"}]}}`,
		},
		{
			name: "another step", step: 1, code: CodeConflict,
			rollout: `{` + spec + `,"status":{"currentPodHash":"new","pauseConditions":[{"reason":"BlueGreenPause"}]}}`,
		},
		{name: "aborted", code: CodeConflict, rollout: `{` + spec + `,"status":{"abort":true,"currentPodHash":"new","stableRS":"old"}}`},
		{
			name: "paused by hand", code: CodeConflict,
			rollout: `{"spec":{"paused":true,"strategy":{"blueGreen":{}}},"status":{"currentPodHash":"new"}}`,
		},
		{
			name: "paused by an analysis", code: CodeConflict,
			rollout: `{` + spec + `,"status":{"currentPodHash":"new","pauseConditions":[{"reason":"InconclusiveAnalysisRun"}]}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := RolloutRequest{Ref: Ref{Kind: rolloutKind, Namespace: "shop", Name: "api"}, Step: tc.step, PodHash: "new"}
			got, err := NextPromotion(want, object(t, tc.rollout))
			check(t, got, err, tc.want, tc.waiting, tc.code)
			if diff := cmp.Diff(tc.value, got.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
	_, err := NextPromotion(RolloutRequest{}, object(t,
		`{`+spec+`,"status":{"currentPodHash":"new","pauseConditions":[{"reason":"BlueGreenPause"}]}}`))
	check(t, Decision{}, err, Done, "", CodeConflict)
}
