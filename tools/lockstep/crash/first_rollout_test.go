package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// printed is a block of commands, and the block of output below it.
var printed = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// tutorial are the pages of the tutorial, in the order in which a reader follows them.
func tutorial() []string {
	return []string{"first-rollout.md", "failure-and-rollback.md", "approval-by-a-second-person.md"}
}

// TestFirstRolloutAsPrinted runs the commands of the tutorial as they are printed, in one shell from the first page to the last, without
// Docker, and compares their output with the pages: … stands for what differs, alone on a line for any number of lines. The width of
// columns does not matter.
func TestFirstRolloutAsPrinted(t *testing.T) {
	t.Parallel()
	const folder, mark = "../../../docs/tutorial", "-- end of block --\n"
	if files, err := filepath.Glob(filepath.Join(folder, "*.md")); err != nil || len(files) != len(tutorial())+1 {
		t.Fatalf("found %v, %v; expected README.md and the pages of the tutorial", files, err)
	}
	script := "set -euo pipefail\n"
	var blocks [][]string
	for _, name := range tutorial() {
		page, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		found := printed.FindAllStringSubmatch(string(page), -1)
		if len(found) == 0 {
			t.Errorf("%s has no commands", name)
		}
		blocks = append(blocks, found...)
	}
	for _, block := range blocks {
		script += block[1] + "printf '%s' '" + mark + "'\n"
	}
	data, home := t.TempDir(), t.TempDir()
	ctx, _ := startIn(t, stack.Config{Dir: data, DatabaseURL: pgtest.URL(t), Fast: true}, demo.Story())
	commands(t, filepath.Join(home, "bin"))
	bash := exec.CommandContext(ctx, "bash", "-c", script)
	bash.Dir = home
	bash.Env = append(os.Environ(), "LOCKSTEP_DATA="+data, "HOME="+home, "GIT_CONFIG_NOSYSTEM=1")
	bash.WaitDelay = time.Second
	text, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("the tutorial ends with %v:\n%s", err, text)
	}
	outputs := strings.Split(string(text), mark)
	if len(outputs) != len(blocks)+1 {
		t.Fatalf("got %d outputs of %d blocks:\n%s", len(outputs)-1, len(blocks), text)
	}
	compared := 0
	for i, block := range blocks {
		if block[2] == "" {
			continue
		}
		compared++
		if !expected(block[2]).MatchString(spaced(outputs[i])) {
			t.Errorf("block %d prints\n%s\nthe page has\n%s", i+1, outputs[i], block[2])
		}
	}
	if compared < 8 {
		t.Errorf("the pages have only %d outputs", compared)
	}
}

// expected is the pattern of an output on a page.
func expected(output string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(spaced(output))
	pattern = regexp.MustCompile(`(?m)^…\n`).ReplaceAllString(pattern, "(?:.*\n)*?")
	return regexp.MustCompile(`\A` + strings.ReplaceAll(pattern, "…", ".*") + `\z`)
}

// spaced collapses the space between columns, and removes it at the ends of lines.
func spaced(text string) string {
	text = regexp.MustCompile(`[ \t]+`).ReplaceAllString(text, " ")
	return regexp.MustCompile(`(?m) $`).ReplaceAllString(text, "")
}

// commands puts lockstep, which is this binary, into a folder.
func commands(t *testing.T, folder string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/sh\nLOCKSTEP_TEST_AS_COMMAND=1 exec %q \"$@\"\n", self)
	if err := os.WriteFile(filepath.Join(folder, "lockstep"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}
