package git

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/reconcile"
)

// TestForges is what every interface has to do alike (D26): plain Git, GitLab, GitHub, and Gitea or Forgejo.
func TestForges(t *testing.T) {
	t.Parallel()
	for _, forge := range Forges() {
		for name, check := range map[string]func(*testing.T, *server){
			"reads":     forgeReads,
			"commits":   forgeCommits,
			"repeats":   forgeRepeats,
			"conflicts": forgeConflicts,
			"races":     forgeRaces,
			"refusals":  forgeRefusals,
			"many":      forgeMany,
			"history":   forgeHistory,
		} {
			t.Run(forge+" "+name, func(t *testing.T) {
				t.Parallel()
				check(t, setupForge(t, forge))
			})
		}
	}
}

// GitLab finds a project by its number as well. The guard would not know the repository by it, so nothing is done there (D46).
func TestAProjectIsNotNamedByItsNumber(t *testing.T) {
	t.Parallel()
	s := setupForge(t, GitLab)
	head := s.add(t, "main", map[string]string{"file": "x\n"})
	c := s.request(map[string]string{"file": "new\n"})
	c.RepoURL = strings.TrimSuffix(s.url, "/shop.git") + "/123"
	_, err := s.forge.Commit(t.Context(), c)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `found the path "/123", expected the project's name`) {
		t.Errorf("found %v; expected that the number is refused", err)
	}
	if got := s.rev(t, "main"); got != head {
		t.Errorf("main is at %s; expected %s, where it was", got, head)
	}
}

// D66: the last commits with trailers of Lockstep, newest first, of a branch and of the default one.
func forgeHistory(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"staging/api.yaml": "one\n"})
	var want []reconcile.Commit
	for i := range 2 {
		c := s.request(map[string]string{"staging/api.yaml": fmt.Sprintf("version %d\n", i)})
		c.Activity, c.Trailers = fmt.Sprintf("exec-1/0.%d", i), map[string]string{"Lockstep-Rollout": "7", "Reviewed-By": "Ann"}
		sha, err := s.forge.Commit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		want = append([]reconcile.Commit{{SHA: sha, Trailers: map[string]string{"Lockstep-Rollout": "7", "Lockstep-Activity": c.Activity}}}, want...)
	}
	s.add(t, "main", map[string]string{"staging/api.yaml": "hers\n"})
	for _, name := range []string{"main", "refs/heads/main", ""} {
		got, err := s.forge.History(t.Context(), 1, reconcile.Branch{Repository: s.url, Name: name})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("branch %q: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := s.forge.History(t.Context(), 1, reconcile.Branch{Repository: s.url, Name: "none"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a branch that does not exist: %v", err)
	}
}

func forgeReads(t *testing.T, s *server) {
	t.Helper()
	first := s.add(t, "main", map[string]string{"staging/api.yaml": "one\n" + strings.Repeat("# a long line\n", 20)})
	s.git(t, s.dir, "tag", "v1", first)
	second := s.add(t, "main", map[string]string{"staging/api.yaml": "two ü\n"})
	s.add(t, "feature/x", map[string]string{"a": "b"})
	for ref, want := range map[string]string{"main": second, "v1": first, second: second} {
		content, sha, err := s.forge.ReadFile(t.Context(), 1, s.url, ref, "staging/api.yaml")
		if err != nil || sha != want || string(content) != s.git(t, s.dir, "show", want+":staging/api.yaml") {
			t.Errorf("at %s: %q, %s, %v", ref, content, sha, err)
		}
	}
	if content, _, err := s.forge.ReadFile(t.Context(), 1, s.url, "feature/x", "a"); err != nil || string(content) != "b" {
		t.Errorf("a branch with a slash: %q, %v", content, err)
	}
	for _, tt := range []struct {
		ref, path string
		class     fault.Class
	}{
		{"none", "staging/api.yaml", fault.NotFound},
		{"main", "staging/web.yaml", fault.NotFound},
		{"main", "staging", fault.Invalid},
		{"main", "../x", fault.Invalid},
	} {
		if _, _, err := s.forge.ReadFile(t.Context(), 1, s.url, tt.ref, tt.path); !fault.Is(err, tt.class) {
			t.Errorf("%s at %s: %v", tt.path, tt.ref, err)
		}
	}
	if _, _, err := s.forge.ReadFile(t.Context(), 1, s.url+"x", "main", "a"); !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		t.Errorf("no such repository: %v", err)
	}
	if err := os.WriteFile(strings.TrimPrefix(s.forge.credentials.all[0].PasswordRef, "file:"), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.forge.ReadFile(t.Context(), 1, s.url, "main", "a"); !fault.Is(err, fault.Unauthenticated) ||
		strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: %v", err)
	}
}

// forgeCommits: several files in one commit, modes that stay, trailers at the end, the configured author.
func forgeCommits(t *testing.T, s *server) {
	t.Helper()
	base := s.add(t, "main", map[string]string{"staging/api.yaml": "old\n", "100755 run.sh": "old\n", "z": "kept\n"})
	c := s.request(map[string]string{"staging/api.yaml": "new\n", "run.sh": "new\n", "new/deep/er.yaml": "added\n"})
	c.Trailers = map[string]string{"Lockstep-Rollout": "12"}
	sha, err := s.forge.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if s.rev(t, "main") != sha || s.rev(t, "main^") != base {
		t.Errorf("main is at %s on %s, want %s on %s", s.rev(t, "main"), s.rev(t, "main^"), sha, base)
	}
	want := "100644 new/deep/er.yaml\n100755 run.sh\n100644 staging/api.yaml\n100644 z\n"
	if diff := cmp.Diff(want, s.git(t, s.dir, "ls-tree", "-r", "--format=%(objectmode) %(path)", "main")); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	wantMessage := "Deploy 7 to staging\n\nLockstep-Rollout: 12\nLockstep-Activity: exec-1/0.3\nLockstep <lockstep@example.com>\n"
	if diff := cmp.Diff(wantMessage, s.git(t, s.dir, "log", "-1", "--format=%B%an <%ae>", "main")); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// forgeRepeats: an activity has one commit, and an unchanged tree none.
func forgeRepeats(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "old\n"})
	sha, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "new\n"}))
	if err != nil {
		t.Fatal(err)
	}
	head := s.add(t, "main", map[string]string{"a": "hers\n"})
	if again, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "new\n"})); err != nil || again != sha ||
		s.rev(t, "main") != head {
		t.Errorf("a repeat: %s, %v; want %s, with main at %s", again, err, sha, head)
	}
	edit := s.request(map[string]string{"a": "edited\n"})
	edit.Activity, edit.Shared, edit.Trailers = "edit-1/0.3", "Lockstep-Edit", map[string]string{"Lockstep-Edit": "cafe"}
	edited, err := s.forge.Commit(t.Context(), edit)
	if err != nil {
		t.Fatal(err)
	}
	head = s.add(t, "main", map[string]string{"a": "hers\n"})
	edit.Activity = "edit-2/0.3" // the next run of the edit (R4-28)
	if again, err := s.forge.Commit(t.Context(), edit); err != nil || again != edited || s.rev(t, "main") != head {
		t.Errorf("the next run: %s, %v; want %s, with main at %s", again, err, edited, head)
	}
	// Anybody can write the trailer: it counts in no commit of another author, and of none (R4-28).
	edit.Activity, edit.Trailers = "edit-3/0.3", map[string]string{"Lockstep-Edit": "beef"}
	for _, by := range []string{"Eve <eve@example.com>", "Lockstep <eve@example.com>", " <>"} {
		head = s.addAs(t, "main", by, "Fix\n\nLockstep-Edit: beef\n", map[string]string{"a": by + "\n"})
		read, err := s.forge.FindCommit(t.Context(), 1, s.url, "main", "Lockstep-Edit", "beef")
		if err != nil || read.SHA != "" {
			t.Errorf("forged by %q: found %+v, %v; want nothing", by, read, err)
		}
	}
	if made, err := s.forge.Commit(t.Context(), edit); err != nil || made == head || s.rev(t, "main^") != head {
		t.Errorf("beside forged ones: %s, %v; want a commit on %s", made, err, head)
	}
	head = s.add(t, "main", map[string]string{"a": "hers\n"})
	same := s.request(map[string]string{"a": "hers\n"})
	same.Activity = "exec-1/0.4"
	if got, err := s.forge.Commit(t.Context(), same); err != nil || got != head || s.rev(t, "main") != head {
		t.Errorf("an unchanged tree: %s, %v; want %s", got, err, head)
	}
	// Git and forges take punctuation off the ends of names: the author that is configured is recognized all the same (R4-28).
	s.forge.author = author{name: `"Acme Inc."`, email: "cd@example.com."}
	edit.Activity, edit.Trailers = "edit-4/0.3", map[string]string{"Lockstep-Edit": "f00d"}
	edit.Files = map[string][]byte{"a": []byte("acme\n")}
	if edited, err = s.forge.Commit(t.Context(), edit); err != nil {
		t.Fatal(err)
	}
	head = s.add(t, "main", map[string]string{"a": "hers\n"})
	edit.Activity = "edit-5/0.3"
	if again, err := s.forge.Commit(t.Context(), edit); err != nil || again != edited || s.rev(t, "main") != head {
		t.Errorf("the next run of %q: %s, %v; want %s, with main at %s", s.forge.author.name, again, err, edited, head)
	}
}

// R4-28: an author is the same one as Git has written it.
func TestAuthorsAreComparedAsGitKeepsThem(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "x\n"})
	tree := strings.TrimSpace(s.git(t, s.dir, "rev-parse", "main^{tree}"))
	for _, name := range []string{
		"Acme Inc.", " .,:;<>\"\\'A'\"\\><;:,. \t", "A <B> C\nD", "Zoë.", "é", "O'Neil, Ltd",
		"-A-", "A\x01", "(A)", "A…",
	} {
		sha := strings.TrimSpace(s.gitIn(t, s.dir, "m", "-c", "user.name="+name, "-c", "user.email="+name, "commit-tree", tree, "-F", "-"))
		kept := strings.Split(strings.TrimSuffix(s.git(t, s.dir, "show", "-s", "--format=%an%x00%ae", sha), "\n"), "\x00")
		if !(author{name, name}).is(author{kept[0], kept[1]}) || bare(name) != kept[0] {
			t.Errorf("%q: found %q; want %q, as Git keeps it", name, bare(name), kept[0])
		}
	}
	if (author{"Acme Inc.", "a@example.com"}).is(author{"Acme Inc", "b@example.com"}) ||
		(author{"Acme", "a@example.com"}).is(author{"acme", "a@example.com"}) {
		t.Error("found others; want them to differ")
	}
}

func forgeConflicts(t *testing.T, s *server) {
	t.Helper()
	base := s.add(t, "main", map[string]string{"a": "old\n", "b": "old\n"})
	s.add(t, "main", map[string]string{"b": "hers\n"})
	c := s.request(map[string]string{"a": "new\n"})
	c.Base = base
	if _, err := s.forge.Commit(t.Context(), c); err != nil {
		t.Errorf("another file has changed: %v", err)
	}
	c = s.request(map[string]string{"b": "new\n"})
	c.Base, c.Activity = base, "exec-1/0.9"
	if _, err := s.forge.Commit(t.Context(), c); !fault.Is(err, fault.Conflict) {
		t.Errorf("this file has changed: %v", err)
	}
	c.Base = strings.Repeat("1", 40)
	if _, err := s.forge.Commit(t.Context(), c); !fault.Is(err, fault.Conflict) {
		t.Errorf("a base that is nowhere: %v", err)
	}
}

// forgeRaces: another commit changes the same file just before the write. It stays in the history, and ours is on top of it: the branch
// was read again.
func forgeRaces(t *testing.T, s *server) {
	t.Helper()
	s.add(t, "main", map[string]string{"a": "old\n", "c": "old\n"})
	var once sync.Once
	var hers string
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			once.Do(func() { hers = s.add(t, "main", map[string]string{"a": "hers\n", "b": "hers\n"}) })
		}
		return false
	}
	sha, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "new\n"}))
	if err != nil || s.rev(t, "main") != sha || s.rev(t, "main^") != hers {
		t.Fatalf("%s, %v; main is at %s on %s, hers is %s", sha, err, s.rev(t, "main"), s.rev(t, "main^"), hers)
	}
	if got := s.git(t, s.dir, "show", "main:a", "main:b", "main:c"); got != "new\nhers\nold\n" {
		t.Errorf("main has %q", got)
	}
}

// forgeRefusals: what a rule of the repository forbids is not a race, and what is impossible is reported before anything is written.
func forgeRefusals(t *testing.T, s *server) {
	t.Helper()
	head := s.add(t, "main", map[string]string{"file": "x\n", "dir/a": "x\n"})
	for path, want := range map[string]string{"file/x": `found "file", which is no folder`, "dir": `found "dir", which is no file`} {
		if _, err := s.forge.Commit(t.Context(), s.request(map[string]string{path: "new\n"})); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	c := s.request(map[string]string{"file": "new\n"})
	c.Branch = "nope"
	if _, err := s.forge.Commit(t.Context(), c); !fault.Is(err, fault.NotFound) ||
		!strings.Contains(err.Error(), `branch "nope" does not exist`) {
		t.Errorf("no such branch: %v", err)
	}
	hook := filepath.Join(s.dir, "hooks", "pre-receive") // of plain Git; the others' is the file protected
	if err := os.MkdirAll(filepath.Dir(hook), 0o750); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{hook: 0o700, filepath.Join(s.dir, "protected"): 0o600} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.forge.Commit(t.Context(), s.request(map[string]string{"file": "new\n"})); !fault.Is(err, fault.Refused) ||
		s.rev(t, "main") != head {
		t.Errorf("a rule of the repository: %v", err)
	}
}

// forgeMany: fifty deployments commit to one branch at once, and all land. What two processes do to each other is
// TestManyWritersOfOneBranch.
func forgeMany(t *testing.T, s *server) {
	t.Helper()
	const many = 50
	s.add(t, "main", map[string]string{"a": "old\n"})
	var group sync.WaitGroup
	for i := range many {
		group.Go(func() {
			c := s.request(map[string]string{fmt.Sprintf("deploy/%d.yaml", i): "x\n"})
			c.Activity = fmt.Sprintf("exec-%d/0.1", i)
			if _, err := s.forge.Commit(t.Context(), c); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	group.Wait()
	if got := strings.TrimSpace(s.git(t, s.dir, "rev-list", "--count", "main")); got != fmt.Sprint(1+many) {
		t.Errorf("%s commits, want %d", got, 1+many)
	}
	if got := strings.Fields(s.git(t, s.dir, "ls-tree", "-r", "--name-only", "main", "deploy")); len(got) != many {
		t.Errorf("%d files, want %d", len(got), many)
	}
}
