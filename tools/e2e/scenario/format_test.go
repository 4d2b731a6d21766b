package scenario_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/tools/e2e/scenario"
)

// TestScenariosAreWellFormed finds a mistake in a scenario without a cluster.
func TestScenariosAreWellFormed(t *testing.T) {
	t.Parallel()
	all, err := scenario.Load("../scenarios")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if len(s.Acts) == 0 {
			t.Errorf("%s: found no acts", s.Name)
		}
	}
}
