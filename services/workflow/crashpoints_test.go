package workflow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCrashPointsNameTheirTests checks the table of crash points: every point from C1 to C28 is in it, and every test that it
// names exists.
func TestCrashPointsNameTheirTests(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("crashpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, pattern := range []string{
		"*_test.go", "internal/*/*_test.go", "../../pkg/outbox/*_test.go",
		"../../tools/lockstep/crash/*_test.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", pattern, len(files), err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(source)
		}
	}
	for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(string(table), -1) {
		if !strings.Contains(sources.String(), "func "+name+"(t *testing.T)") {
			t.Errorf("there is no test %s", name)
		}
	}
	for point := 1; point <= 28; point++ {
		if !strings.Contains(string(table), fmt.Sprintf("\n| C%d |", point)) {
			t.Errorf("C%d is not in the table", point)
		}
	}
}
