package workflow_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestExampleOfAProgram: the program in docs/examples is the one that TestScenarios runs.
func TestExampleOfAProgram(t *testing.T) {
	t.Parallel()
	shown, err := os.ReadFile("../../docs/examples/program/nightly.star")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := txtar.ParseFile("testdata/scenarios/example_nightly.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(shown), section(archive, "main.star")); diff != "" {
		t.Errorf("program (-docs +scenario):\n%s", diff)
	}
}
