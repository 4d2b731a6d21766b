package core

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTheStateMachinesAreAsDesigned spells the two life cycles out once more (R35, R36).
func TestTheStateMachinesAreAsDesigned(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind SubjectKind
		want []string
	}{
		{SubjectRollout, []string{
			"in_progress cancel cancelled", "in_progress complete completed", "in_progress fail failed", "in_progress pause paused",
			"paused cancel cancelled", "paused fail failed", "paused resume in_progress",
			"pending cancel cancelled", "pending fail failed", "pending start in_progress",
		}},
		{SubjectDeployment, []string{
			"deploying cancel cancelled", "deploying complete healthy", "deploying degrade degraded", "deploying fail failed",
			"pending cancel cancelled", "pending fail failed", "pending start deploying",
		}},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			t.Parallel()
			var got []string
			for from, verbs := range MachineOf(tt.kind) {
				for verb, to := range verbs {
					got = append(got, string(from)+" "+string(verb)+" "+string(to))
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("table = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	kinds := []SubjectKind{SubjectRollout, SubjectRolloutEnvironment, SubjectDeployment}
	verbs := []Verb{VerbStart, VerbPause, VerbResume, VerbComplete, VerbDegrade, VerbFail, VerbCancel}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		m := MachineOf(kind)
		state, journal := StatePending, []Move{}
		for _, verb := range rapid.SliceOfN(rapid.SampledFrom(verbs), 1, 20).Draw(t, "verbs") {
			path := m.Path(state, verb)
			if state.Terminal() && len(path) > 0 {
				t.Fatalf("%s: %s leaves the terminal state %s", kind, verb, state)
			}
			if len(path) > 2 || len(path) > 0 && path[len(path)-1].Verb != verb {
				t.Fatalf("%s in %s takes the path %v", verb, state, path)
			}
			for _, step := range path {
				if to, legal := m[step.From][step.Verb]; !legal || to != step.To || step.From != state || step.From == step.To {
					t.Fatalf("illegal step %v from state %s", step, state)
				}
				state = step.To
			}
			journal = append(journal, path...)
			if again := m.Path(state, verb); len(path) > 0 && len(again) > 0 {
				t.Fatalf("%s a second time, in %s, moves again: %v", verb, state, again)
			}
		}
		if len(journal) > 0 && journal[len(journal)-1].To != state {
			t.Fatalf("the cache says %s, the journal %s", state, journal[len(journal)-1].To)
		}
	})
}
