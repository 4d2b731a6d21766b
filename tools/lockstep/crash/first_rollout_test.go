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

	"github.com/lockstep-cd/lockstep/pkg/pg/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// printed is what a reader types into a shell, and what stands below it as its output.
var printed = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// What the page on a first rollout prints works as it is printed, in one shell from its beginning to its end, without Docker, and prints
// what the page says: … stands for what differs, alone on a line for any lines. How wide columns are does not matter.
func TestFirstRolloutAsPrinted(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const mark = "-- end of block --\n"
	script := "set -euo pipefail\n"
	blocks := printed.FindAllStringSubmatch(string(page), -1)
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
		t.Fatalf("the page ends with %v:\n%s", err, text)
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
			t.Errorf("block %d prints\n%s\nThe page says\n%s", i+1, outputs[i], block[2])
		}
	}
	if compared < 8 {
		t.Errorf("only %d outputs are on the page", compared)
	}
}

// expected is what an output of the page matches.
func expected(output string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(spaced(output))
	pattern = regexp.MustCompile(`(?m)^…\n`).ReplaceAllString(pattern, "(?:.*\n)*?")
	return regexp.MustCompile(`\A` + strings.ReplaceAll(pattern, "…", ".*") + `\z`)
}

// spaced is a text whose columns are one space apart, without spaces where lines end.
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
