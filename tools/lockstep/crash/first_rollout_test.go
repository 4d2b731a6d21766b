package crash

import (
	"context"
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

// printed is a part of a page that a reader types into a shell.
var printed = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// What the page on a first rollout prints works as it is printed, in one shell from its beginning to its end. Only docker, which
// a machine that runs tests may lack, is another one that pushes an image of ours under the name that it is given.
func TestFirstRolloutAsPrinted(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\n"
	for _, block := range printed.FindAllStringSubmatch(string(page), -1) {
		script += block[1]
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
	for _, want := range []string{
		"production   ready", "rollout: complete → completed", "alice@example.com  staging looks good", "production   completed  api      healthy  1.0.0",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("what the page prints lacks %q:\n%s", want, text)
		}
	}
}

// commands puts lockstep and docker into a folder, both this binary.
func commands(t *testing.T, folder string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, as := range map[string]string{"lockstep": "COMMAND", "docker": "DOCKER"} {
		text := fmt.Sprintf("#!/bin/sh\nLOCKSTEP_TEST_AS_%s=1 exec %q \"$@\"\n", as, self)
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// docker is `docker push` with an image of ours, and anything else that docker does is nothing.
func docker(args []string) int {
	if len(args) != 2 || args[0] != "push" {
		return 0
	}
	registry, rest, _ := strings.Cut(args[1], "/")
	repository, tag, _ := strings.Cut(rest, ":")
	if _, err := demo.PushImage(context.Background(), registry, repository, tag, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
