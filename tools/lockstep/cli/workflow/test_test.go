package workflow

import (
	"path/filepath"
	"strings"
	"testing"

	engine "github.com/lockstep-cd/lockstep/services/workflow"
)

// TestTheTablesInTheExamples plays the tables of the documentation, and those of the built-in driver's programs (issue 18).
func TestTheTablesInTheExamples(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"docs/examples/*/*.test.yaml", "services/workflow/testdata/cases/*.yaml"} {
		found, err := filepath.Glob(filepath.Join("../../../..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: found %v, error %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	seeds := make([]uint64, 50)
	for i := range seeds {
		seeds[i] = uint64(i) + 1
	}
	for _, file := range files {
		cases, err := readCases(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			t.Run(filepath.Base(file)+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				if o := engine.Test(c, seeds); !o.Passed || o.Crashes == 0 {
					t.Errorf("%d crashes: %s", o.Crashes, strings.Join(o.Failures, "\n"))
				}
			})
		}
	}
}
