package model_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// depth is how long a path of a search may be, in steps. One that is longer is an error, not left out.
const depth = 200_000

// within bounds a search: on two idle cores the longest takes less than ten seconds.
const within = 10 * time.Minute

// spin is the model checker that `make model` has found or installed.
func spin(t *testing.T) string {
	t.Helper()
	program := os.Getenv("LOCKSTEP_SPIN")
	if program == "" {
		t.Skip("LOCKSTEP_SPIN, the model checker, is not set; `make model` finds or installs it, and sets it")
	}
	return program
}

// TestModels searches every state of each model: nothing that it asserts is ever untrue, nothing is blocked for ever, and what has to
// happen happens. Each mutant, the same with one precaution less, has to be found wrong by the same search.
func TestModels(t *testing.T) {
	t.Parallel()
	program := spin(t)
	for _, m := range models(t) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			t.Run("safety", func(t *testing.T) {
				t.Parallel()
				s := search(t, program, m, safety)
				s.complete(t)
				s.reached(t)
			})
			t.Run("progress", func(t *testing.T) {
				t.Parallel()
				search(t, program, m, progress).complete(t)
			})
			for _, spare := range m.tagged("spare") {
				t.Run(spare.name, func(t *testing.T) {
					t.Parallel()
					search(t, program, m, safety, spare.name).complete(t)
				})
			}
			for _, deep := range m.tagged("deep") {
				if os.Getenv("LOCKSTEP_MODEL_DEEP") == "" {
					continue
				}
				t.Run(deep.name, func(t *testing.T) {
					t.Parallel()
					search(t, program, m, safety, deep.name).complete(t)
					search(t, program, m, progress, deep.name).complete(t)
				})
			}
			for _, mutant := range m.tagged("mutant") {
				t.Run(mutant.name, func(t *testing.T) {
					t.Parallel()
					search(t, program, m, untilWrong, mutant.name).fails(t, mutant.kind)
				})
			}
		})
	}
}

// mode is what a search looks for.
type mode int

const (
	// safety: assertions, and states in which nothing can happen although something should.
	safety mode = iota
	// progress: the formula of the model, on every path, also on those that never end.
	progress
	// untilWrong: safety, of a variant that is soon found wrong, so that the verifier is made in a hurry.
	untilWrong
)

// found is what a search has answered.
type found struct {
	report string
	errors int
}

// search has Spin make a verifier of a model and runs it over all states.
func search(t *testing.T, program string, m model, what mode, define ...string) found {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	dir := t.TempDir()
	args := []string{"-a"}
	for _, name := range define {
		args = append(args, "-D"+name)
	}
	run(ctx, t, dir, program, append(args, m.path)...)
	build := []string{"-w", "-DMEMLIM=6000", "-o", "pan", "pan.c"}
	verify := []string{"-m" + strconv.Itoa(depth), "-b"}
	switch what {
	case safety:
		build = append([]string{"-O1", "-DSAFETY", "-DNOCLAIM"}, build...)
	case progress:
		build, verify = append([]string{"-O1"}, build...), append(verify, "-a")
	case untilWrong:
		build = append([]string{"-O0", "-DSAFETY", "-DNOCLAIM"}, build...)
	}
	run(ctx, t, dir, "cc", build...)
	report := run(ctx, t, dir, "./pan", verify...)
	s := found{report: report, errors: -1}
	if n := regexp.MustCompile(`errors: (\d+)`).FindStringSubmatch(report); n != nil {
		s.errors, _ = strconv.Atoi(n[1]) // digits
	}
	t.Logf("%s: %s", strings.TrimPrefix(t.Name(), "TestModels/"), s.figures())
	return s
}

// run answers what a program prints, and ends the test when it fails.
func run(ctx context.Context, t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// figures are how much was searched, for people.
func (s found) figures() string {
	find := func(pattern string) string {
		if n := regexp.MustCompile(pattern).FindStringSubmatch(s.report); n != nil {
			return n[1]
		}
		return "0"
	}
	return fmt.Sprintf("%s states, paths of up to %s steps, %s s", find(`(\d\S*) states, stored`), find(`depth reached (\d+)`),
		find(`elapsed time (\S+) seconds`))
}

// complete fails the test where anything was found, or anything was left out.
func (s found) complete(t *testing.T) {
	t.Helper()
	if s.errors != 0 {
		t.Errorf("found %d errors, expected none", s.errors)
	}
	for _, left := range []string{"Search not completed", "max search depth too small", "out of memory", "MEMLIM", "Bit statespace"} {
		if strings.Contains(s.report, left) {
			t.Errorf("the search was not complete: %q", left)
		}
	}
	if !strings.Contains(s.report, "Full statespace search for:") {
		t.Error("the report is not that of a search of all states")
	}
	if t.Failed() {
		t.Log(s.report)
	}
}

// reached fails the test where an assertion was never come to: it would say nothing.
func (s found) reached(t *testing.T) {
	t.Helper()
	if !strings.Contains(s.report, "unreached in proctype") {
		t.Error("the report does not say what was reached")
	}
	for line := range strings.Lines(s.report) {
		if strings.Contains(line, ", state ") && strings.Contains(line, `"assert(`) {
			t.Errorf("never reached: %s", filepath.Base(strings.TrimSpace(line)))
		}
	}
}

// fails fails the test where a mutant was not found wrong in the way that is expected of it.
func (s found) fails(t *testing.T, kind string) {
	t.Helper()
	message, known := map[string]string{"assertion": "assertion violated", "blocked": "invalid end state"}[kind]
	if !known {
		t.Fatalf("found kind %q, expected assertion or blocked", kind)
	}
	if s.errors < 1 || !strings.Contains(s.report, message) {
		t.Errorf("found %d errors, expected %q\n%s", s.errors, message, s.report)
	}
}
