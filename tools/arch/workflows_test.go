package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// target is a target of the Makefile with a line in `make help`.
	target = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)
	// command is a command of a workflow: a step of GitHub, or an item of a script of GitLab.
	command = regexp.MustCompile(`(?m)^ +- (?:run: )?(make .*)$`)
	// making is a command that names targets and variables and nothing else.
	making = regexp.MustCompile(`^make( [a-z0-9-]+| [A-Z_]+=[A-Za-z0-9]+)+$`)
	// pinned is a step that uses an action by its commit, or one of ours.
	pinned = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$|^\./\.github/actions/\w+$`)
)

// TestWorkflowsAreListsOfTargets: what a build server does, a laptop does with the same target.
func TestWorkflowsAreListsOfTargets(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var targets []string
	for _, found := range target.FindAllStringSubmatch(read("../../Makefile"), -1) {
		targets = append(targets, found[1])
	}
	files := []string{"../../.gitlab-ci.yml"}
	for _, pattern := range []string{"workflows/*.yml", "actions/*/action.yml"} {
		found, err := filepath.Glob(filepath.Join("../../.github", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: found %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	made := map[string]bool{}
	for _, file := range files {
		text := read(file)
		commands := command.FindAllStringSubmatch(text, -1)
		for _, c := range commands {
			if !making.MatchString(c[1]) {
				t.Errorf("%s: found %q; expected make with targets and variables", file, c[1])
			}
			for _, name := range strings.Fields(c[1])[1:] {
				if !strings.Contains(name, "=") && !slices.Contains(targets, name) {
					t.Errorf("%s: found the target %s; expected one of the Makefile", file, name)
				}
				made[name] = true
			}
		}
		for _, key := range []string{"run:", "before_script:", "after_script:"} {
			if strings.Count(text, key) != strings.Count(text, "- "+key+" make ") {
				t.Errorf("%s: found %s without make", file, key)
			}
		}
		for _, uses := range regexp.MustCompile(`(?m)uses: (.*)$`).FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(uses[1]) {
				t.Errorf("%s: found %q; expected an action that is pinned by its commit, with its version behind it", file, uses[1])
			}
		}
		for _, script := range regexp.MustCompile(`(?m)^  script:\n((?:    .*\n)*)`).FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(script[1]) {
				if !strings.HasPrefix(line, "    - make ") {
					t.Errorf("%s: found %q in a script; expected make", file, strings.TrimSpace(line))
				}
			}
		}
	}
	// Every step of `make ci` and of `make nightly` is in a workflow.
	steps := strings.Fields(regexp.MustCompile(`(?m)^CI_STEPS := (.*)$`).FindStringSubmatch(read("../../Makefile"))[1])
	steps = append(steps, "check", "simulate", "chaos", "upgrade", "e2e-ci", "e2e-charts", "clients", "console-drift", "console-test", "nightly")
	for _, name := range steps {
		if !made[name] {
			t.Errorf("no workflow makes %s", name)
		}
	}
	// A change is not kept waiting by the scenarios that need hours, or controllers that only the nightly run builds.
	if made["e2e"] {
		t.Error("found e2e in a workflow; expected e2e-ci")
	}
}
