package core_test

import (
	"slices"
	"testing"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// R3-16: an environment follows those that it names, in the order of promotion, or else the one before it; the first one follows none.
func TestWhatAnEnvironmentFollows(t *testing.T) {
	t.Parallel()
	all := []core.RolloutEnvironment{
		{ID: 1, EnvironmentID: 11, Position: 1},
		{ID: 2, EnvironmentID: 12, Position: 2},
		{ID: 3, EnvironmentID: 13, Position: 3, Follows: []int64{}},
		{ID: 4, EnvironmentID: 14, Position: 4, Follows: []int64{13, 11, 99}},
	}
	for i, want := range [][]int64{nil, {11}, nil, {11, 13}} {
		if found := core.Followed(all, all[i]); !slices.Equal(found, want) {
			t.Errorf("environment %d follows %v, expected %v", i+1, found, want)
		}
	}
}
