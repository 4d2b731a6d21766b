package workflow_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestExampleOfAProgram: the programs in docs/examples are those that TestScenarios runs.
func TestExampleOfAProgram(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nightly", "webhook", "trip", "order"} {
		shown, err := os.ReadFile("../../docs/examples/program/" + name + ".star")
		if err != nil {
			t.Fatal(err)
		}
		archive, err := txtar.ParseFile("testdata/scenarios/example_" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(shown), section(archive, "main.star")); diff != "" {
			t.Errorf("%s (-docs +scenario):\n%s", name, diff)
		}
	}
}
