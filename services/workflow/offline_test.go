package workflow_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/events"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// ofTheService are the scenarios that are about what only the service has: an agent of another organization, rows that are kept and read
// without the program, and what an organization has declared.
var ofTheService = []string{
	"timeouts", "set_status", "declared_types", "start_message", "large_values", "continue_children",
}

// TestScenariosLeadToTheSameAsInTheEngine plays the scenarios whose histories the engine has written over PostgreSQL, with crashes at each
// of its commits: what a test on one's own machine finds is what the service does (issue 18).
func TestScenariosLeadToTheSameAsInTheEngine(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if slices.Contains(ofTheService, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all := map[string][]byte{}
			for _, f := range archive.Files {
				all[f.Name] = f.Data
			}
			c, err := offline.ReadScenario(name, all)
			if err != nil {
				t.Fatal(err)
			}
			o := offline.Test(c, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, events.CheckEmit)
			if !o.Passed {
				t.Fatal(strings.Join(o.Failures, "\n"))
			}
			if o.Entries > 6 && o.Crashes == 0 {
				t.Error("no process has crashed")
			}
		})
	}
}
