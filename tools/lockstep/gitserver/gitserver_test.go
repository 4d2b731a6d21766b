package gitserver_test

import (
	"bytes"
	"crypto/rand"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

func serve(t *testing.T) (dir, url string) {
	t.Helper()
	dir = t.TempDir()
	if err := gitserver.Create(t.Context(), dir, "shop",
		map[string]string{"staging/api.yaml": "kind: Rollout\n", "README.md": "shop\n"}); err != nil {
		t.Fatal(err)
	}
	h, err := gitserver.Handler(t.Context(), gitserver.Config{Dir: dir, Username: "lockstep", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return dir, server.URL
}

func git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestCloneCommitPush(t *testing.T) {
	t.Parallel()
	dir, url := serve(t)
	clone := filepath.Join(t.TempDir(), "clone")
	signedIn := strings.Replace(url, "http://", "http://lockstep:secret@", 1)
	if out, err := git(t, "", "clone", "--quiet", signedIn+"/shop.git", clone); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(clone, "staging/api.yaml"), []byte("kind: Rollout\nspec: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"commit", "--quiet", "-am", "Deploy set-1 to staging\n\nLockstep-Rollout: 7"}, {"push", "--quiet"}} {
		if out, err := git(t, clone, args...); err != nil {
			t.Fatalf("git %s: %v: %s", args[0], err, out)
		}
	}
	commits, err := gitserver.Log(t.Context(), dir, "shop")
	if err != nil {
		t.Fatal(err)
	}
	for i := range commits {
		commits[i].SHA = ""
	}
	want := []gitserver.Commit{
		{Subject: "Deploy set-1 to staging", Body: "Lockstep-Rollout: 7", Paths: []string{"staging/api.yaml"}},
		{Subject: "Add the manifests", Paths: []string{"README.md", "staging/api.yaml"}},
	}
	if diff := cmp.Diff(want, commits); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestAPushMakesTheRepository(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	signedIn := strings.Replace(url, "http://", "http://lockstep:secret@", 1)
	work := t.TempDir()
	// More than Git's postBuffer, so that it comes in chunks, and nothing that compresses.
	large := make([]byte, 3<<20)
	_, _ = rand.Read(large)
	if err := os.WriteFile(filepath.Join(work, "large"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "."},
		{"commit", "--quiet", "-m", "First"},
		{"push", "--quiet", signedIn + "/blog.git", "main"},
		{"clone", "--quiet", signedIn + "/blog.git", "again"},
	} {
		if out, err := git(t, work, args...); err != nil {
			t.Fatalf("git %s: %v: %s", args[0], err, out)
		}
	}
	if got, err := os.ReadFile(filepath.Join(work, "again", "large")); err != nil || !bytes.Equal(got, large) {
		t.Errorf("large file: got %d bytes, %v; want what was pushed", len(got), err)
	}
	for _, name := range []string{"nothing.git", "Not A Name.git"} {
		if out, err := git(t, work, "ls-remote", signedIn+"/"+name); err == nil {
			t.Errorf("ls-remote of %s: got %s, want that there is none", name, out)
		}
	}
}

func TestWithoutThePasswordNothingIsServed(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	for _, u := range []string{url, strings.Replace(url, "http://", "http://lockstep:wrong@", 1)} {
		if out, err := git(t, "", "ls-remote", u+"/shop.git"); err == nil {
			t.Errorf("ls-remote of %s answered %s", u, out)
		}
	}
}

func TestCreateLeavesAnExistingRepositoryAlone(t *testing.T) {
	t.Parallel()
	dir, _ := serve(t)
	if err := gitserver.Create(t.Context(), dir, "shop", map[string]string{"other": "x"}); err != nil {
		t.Fatal(err)
	}
	commits, err := gitserver.Log(t.Context(), dir, "shop")
	if err != nil || len(commits) != 1 {
		t.Errorf("log = %v, %v; want the first commit only", commits, err)
	}
	if err := gitserver.Create(t.Context(), dir, "../shop", nil); err == nil {
		t.Error("a name that leaves the folder was taken")
	}
}
