package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/source"
)

// checkout is a clone of a repository as CI has one, on a branch beside main.
type checkout struct {
	t   *testing.T
	dir string
}

func (c checkout) git(args ...string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git", append([]string{"-C", c.dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// commit writes a file and commits it.
func (c checkout) commit(name, text string) {
	c.t.Helper()
	file := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "change "+name)
}

// asked runs a command against the stack, and answers its exit code and what it prints. more is what its environment has besides.
func (w *world) asked(ctx context.Context, t *testing.T, line string, more ...string) (code int, out string) {
	t.Helper()
	e := w.stack.Endpoints()
	cmd := exec.CommandContext(ctx, os.Args[0], strings.Fields(line)...)
	cmd.Env = slices.Concat(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") }),
		[]string{"LOCKSTEP_ENDPOINT=" + e.GraphQL, "LOCKSTEP_TOKEN=" + e.Token, "LOCKSTEP_TEST_AS_COMMAND=1"}, more)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("lockstep %s: %v", line, err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// D60: the command plans the change of a checkout by a server, with the exit codes that docs/how-to/plan-changes.md has for CI.
func TestAChangeIsPlannedFromACheckout(t *testing.T) {
	t.Parallel()
	ctx, w := setup(t, oneStage())
	const repository = "https://git.test/shop/config.git"
	all, err := w.API.Sources(ctx, w.Scenario.Application)
	if err != nil || len(all) == 0 {
		t.Fatalf("sources %v, %v", all, err)
	}
	if _, err = w.API.CreateSource(ctx, all[0].Service.ID, source.Git, fmt.Appendf(nil,
		`{"repository":%q,"branch":"main","paths":"deploy/**"}`, repository)); err != nil {
		t.Fatal(err)
	}
	c := checkout{t, t.TempDir()}
	c.git("init", "-q", "-b", "main")
	c.git("remote", "add", "origin", repository)
	c.commit("deploy/api.yaml", "a: 1\n")
	c.git("checkout", "-q", "-b", "change")
	plan := "plan --repo " + c.dir + " --base main"
	environment := w.Scenario.Stages[0].Environment
	is := func(line string, code int, want ...string) {
		t.Helper()
		got, out := w.asked(ctx, t, line)
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("lockstep %s prints\n%s\nwant %q in it", line, out, text)
			}
		}
		if got != code {
			t.Errorf("lockstep %s ends with %d, want %d:\n%s", line, got, code, out)
		}
	}
	is(plan+" --strict", 0, "The change touches no application.")
	c.commit("README.md", "other\n")
	is(plan+" --strict", 0, "The change touches no application.")
	c.commit("deploy/api.yaml", "a: 2\n")
	is(plan+" --strict", 0, w.Scenario.Application+": no trigger begins a rollout once the change is at the head of main; it waits for a request")
	is("trigger set "+w.Scenario.Application+" commits --kind git", 0)
	is(plan+" --strict", 0, w.Scenario.Application+": trigger commits (git) begins a rollout", "changed: deploy/api.yaml", "  "+environment)
	if _, out := w.asked(ctx, t, plan); strings.Contains(out, "README.md") || strings.Contains(out, "REFUSED") {
		t.Errorf("found\n%s\nwant neither a file that does not count nor a refusal", out)
	}

	is("environment pin "+environment+" --reason audit", 0)
	is(plan, 0, "REFUSED as things are: ", "is pinned")
	is(plan+" --strict", 4, "the rollouts of these applications would be refused: "+w.Scenario.Application)
	is("plan --repo "+c.dir+" --base nothing", 2)
	for more, want := range map[string]int{"LOCKSTEP_TOKEN=lockstep_other": 5, "LOCKSTEP_ENDPOINT=http://127.0.0.1:1/graphql": 6} {
		if got, out := w.asked(ctx, t, plan, more); got != want {
			t.Errorf("with %s it ends with %d, want %d:\n%s", more, got, want, out)
		}
	}
}
