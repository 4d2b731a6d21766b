package trigger

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// A remote is named as sources name the repository, however it is reached (D60).
func TestTheRepositoryOfARemote(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"https://git.example.com/shop/config.git":            "git.example.com/shop/config.git",
		"https://user:word@git.example.com:8443/shop/config": "git.example.com:8443/shop/config",
		"ssh://git@git.example.com:2222/shop/config.git":     "git.example.com/shop/config.git",
		"git@git.example.com:shop/config.git":                "git.example.com/shop/config.git",
		"git.example.com/shop/config":                        "git.example.com/shop/config",
	} {
		if got := repositoryOf(remote); got != want {
			t.Errorf("%s: found %s; expected %s", remote, got, want)
		}
	}
}

// checkout is a repository with a branch main, and a change beside it.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run("init", "-q", "-b", "main")
	run("remote", "add", "origin", "git@git.example.com:shop/config.git")
	write("deploy/api.yaml", "a: 1\n")
	write("deploy/old.yaml", "a: 1\n")
	run("add", "-A")
	run("commit", "-q", "-m", "begin")
	run("checkout", "-q", "-b", "change")
	write("deploy/api.yaml", "a: 2\n")
	run("mv", "deploy/old.yaml", "deploy/ä b.yaml")
	run("add", "-A")
	run("commit", "-q", "-m", "feat: more\n\nof it")
	run("checkout", "-q", "main")
	write("README.md", "x") // what came to main since is no part of the change
	run("add", "-A")
	run("commit", "-q", "-m", "other")
	run("checkout", "-q", "change")
	write("deploy/api.yaml", "a: 3\n") // not committed
	return dir
}

// The change of a checkout is what its commits change since they left the base, a moved file under both names (D60).
func TestTheChangeOfACheckout(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	got, err := planFlags{folder: dir, base: "main", head: "HEAD"}.change(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"deploy/api.yaml", "deploy/old.yaml", "deploy/ä b.yaml"}
	if !slices.Equal(got.Paths, want) || got.Message != "feat: more\n\nof it" || len(got.SHA) != 40 || got.Branch != "main" ||
		got.Repository != "git.example.com/shop/config.git" {
		t.Errorf("change: found %+v; expected %v", got, want)
	}
	for base, problem := range map[string]string{"next": "origin/next", "--output=x": "git diff"} {
		if _, err := (planFlags{folder: dir, base: base, head: "HEAD"}).change(t.Context()); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("base %s: found %v; expected an error with %s", base, err, problem)
		}
	}
	if _, err := (planFlags{folder: t.TempDir(), base: "main", head: "HEAD"}).change(t.Context()); !fault.Is(err, fault.Invalid) {
		t.Errorf("no checkout: found %v", err)
	}
}

// Without a checkout the flags say everything, and git is not run.
func TestAChangeByFlags(t *testing.T) {
	t.Parallel()
	f := planFlags{folder: t.TempDir(), base: "origin/main", repository: "git.example.com/a", paths: []string{"b", "a"}, message: "x"}
	got, err := f.change(t.Context())
	if err != nil || !slices.Equal(got.Paths, []string{"a", "b"}) || got.Branch != "main" || got.Message != "x" {
		t.Errorf("change: found %+v (%v)", got, err)
	}
}

// --strict fails for a rollout that would be refused, and for no other reason.
func TestStrictPlans(t *testing.T) {
	t.Parallel()
	plan := client.Plan{Applications: []client.PlannedApplication{{Application: client.Reference{Name: "shop"}, Refused: "frozen"}}}
	if err := (planFlags{strict: true}).judge(plan); !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "shop") {
		t.Errorf("strict: found %v", err)
	}
	if err := (planFlags{}).judge(plan); err != nil {
		t.Errorf("not strict: found %v", err)
	}
	if err := (planFlags{strict: true}).judge(client.Plan{}); err != nil {
		t.Errorf("nothing refused: found %v", err)
	}
}

// R4-19: what the drivers list is shown, one line for each thing, and why they list nothing.
func TestWhatAVersionSetWouldChange(t *testing.T) {
	t.Parallel()
	var w strings.Builder
	previewTable(&w, client.Preview{Environments: []client.PreviewEnvironment{
		{
			Environment: client.Reference{Name: "staging"}, Changes: []client.FileChange{{Path: "api.yaml"}},
			Compared: &client.ManifestComparison{Commit: "0a1b2c", Things: []client.ChangedThing{
				{Kind: "REPLICAS", Action: "changed", Object: "Deployment/api", Detail: "2 → 4"}, {Kind: "CONFIG_MAP", Action: "added", Object: "ConfigMap/a"},
			}},
		},
		{Environment: client.Reference{Name: "production"}, Compared: &client.ManifestComparison{Reason: "no answer"}},
		{Environment: client.Reference{Name: "last"}, Compared: &client.ManifestComparison{}},
	}})
	want := "staging\n  replicas: Deployment/api changed (2 → 4)\n  config map: ConfigMap/a added\n  compared at 0a1b2c\n  changed: api.yaml\n" +
		"production\n  the manifests could not be compared: no answer\nlast\n  nothing that runs would change\n"
	if w.String() != want {
		t.Errorf("found:\n%s\nwant:\n%s", w.String(), want)
	}
}
