package git

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

func TestCommit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	base := s.add(t, "main", map[string]string{"staging/api.yaml": "old\n", "100755 run.sh": "old\n", "z": "kept\n"})
	c := s.request(map[string]string{"staging/api.yaml": "new\n", "run.sh": "new\n", "new/deep/er.yaml": "added\n"})
	c.Trailers = map[string]string{"Lockstep-Rollout": "12"}
	sha, err := s.forge.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.rev(t, "main"); got != sha {
		t.Errorf("main is at %s, want %s", got, sha)
	}
	if got := s.rev(t, "main^"); got != base {
		t.Errorf("parent is %s, want %s", got, base)
	}
	want := "100644 new/deep/er.yaml\n100755 run.sh\n100644 staging/api.yaml\n100644 z\n"
	if diff := cmp.Diff(want, s.git(t, s.dir, "ls-tree", "-r", "--format=%(objectmode) %(path)", "main")); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	wantMessage := "Deploy 7 to staging\n\nLockstep-Rollout: 12\nLockstep-Activity: exec-1/0.3\nLockstep <lockstep@example.com>\n"
	if diff := cmp.Diff(wantMessage, s.git(t, s.dir, "log", "-1", "--format=%B%an <%ae>", "main")); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	s.git(t, s.dir, "fsck", "--strict")
}

// Nothing stands by a push that is over: a busy service would have as many goroutines as it pushes in a minute.
func TestACommitLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a.txt": "one\n"})
	if _, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a.txt": "two\n"})); err != nil {
		t.Fatal(err)
	}
	stacks := make([]byte, 1<<22)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if at := strings.Index(string(stacks), "net/http.setRequestCancel"); at >= 0 {
		t.Errorf("a timer of an exchange that is over: %.400s", stacks[max(0, at-200):])
	}
}

func TestARepeatFindsTheFirstCommit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "old\n"})
	sha, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "new\n"}))
	if err != nil {
		t.Fatal(err)
	}
	head := s.add(t, "main", map[string]string{"a": "hers\n"})
	again, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "new\n"}))
	if err != nil || again != sha || s.rev(t, "main") != head {
		t.Errorf("repeat: %s, %v; want %s, with main at %s", again, err, sha, head)
	}
}

// R4-28: the next run of an edit, another activity, finds the commit by the trailer that both have, whatever the file is since, and without
// a change of its own; another edit does not.
func TestAnotherRunFindsTheCommit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "old\n"})
	of := func(activity, edit, content string) activity.CommitRequest {
		c := s.request(map[string]string{"a": content})
		c.Activity, c.Shared, c.Trailers = activity, "Lockstep-Edit", map[string]string{"Lockstep-Edit": edit}
		return c
	}
	sha, err := s.forge.Commit(t.Context(), of("edit-1/0.3", "cafe", "new\n"))
	if err != nil {
		t.Fatal(err)
	}
	head := s.add(t, "main", map[string]string{"a": "hers\n"})
	for _, content := range []string{"new\n", "hers\n"} {
		if again, err := s.forge.Commit(t.Context(), of("edit-2/0.3", "cafe", content)); err != nil || again != sha || s.rev(t, "main") != head {
			t.Errorf("the next run: %s, %v; want %s, with main at %s", again, err, sha, head)
		}
	}
	unshared := of("edit-2/0.3", "cafe", "hers\n")
	unshared.Shared = ""
	for _, c := range []activity.CommitRequest{unshared, of("edit-3/0.3", "cafe2", "hers\n")} {
		if other, err := s.forge.Commit(t.Context(), c); err != nil || other != head {
			t.Errorf("another edit: %s, %v; want the head %s", other, err, head)
		}
	}
}

func TestAnUnchangedTreeIsNoCommit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	head := s.add(t, "main", map[string]string{"a": "same\n"})
	sha, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "same\n"}))
	if err != nil || sha != head || s.rev(t, "main") != head {
		t.Errorf("%s, %v; want the head %s", sha, err, head)
	}
}

func TestAFileThatChangedSinceTheBaseIsAConflict(t *testing.T) {
	t.Parallel()
	s := setup(t)
	base := s.add(t, "main", map[string]string{"a": "old\n", "b": "old\n"})
	s.add(t, "main", map[string]string{"b": "hers\n"})
	c := s.request(map[string]string{"a": "new\n"})
	c.Base = base
	if _, err := s.forge.Commit(t.Context(), c); err != nil {
		t.Errorf("another file has changed: %v", err)
	}
	c = s.request(map[string]string{"b": "new\n"})
	c.Base, c.Activity = base, "exec-1/0.9"
	if _, err := s.forge.Commit(t.Context(), c); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "b has changed on branch") {
		t.Errorf("this file has changed: %v", err)
	}
	c.Base = strings.Repeat("1", 40)
	if _, err := s.forge.Commit(t.Context(), c); !fault.Is(err, fault.Conflict) {
		t.Errorf("a base that is nowhere: %v", err)
	}
}

func TestAnotherCommitIsFasterJustBeforeThePush(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "old\n"})
	var races sync.Once
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		// After the refs for the push were read, and before the push itself: only the server's own check is left.
		if strings.HasSuffix(r.URL.Path, "/git-receive-pack") && r.Method == http.MethodPost {
			races.Do(func() { s.add(t, "main", map[string]string{"b": "hers\n"}) })
		}
		return false
	}
	sha, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "new\n"}))
	if err != nil || s.rev(t, "main") != sha {
		t.Fatalf("%s, %v", sha, err)
	}
	if got := s.git(t, s.dir, "show", "main:a", "main:b"); got != "new\nhers\n" {
		t.Errorf("main has %q, want both changes", got)
	}
	if got := strings.TrimSpace(s.git(t, s.dir, "rev-list", "--count", "main")); got != "3" {
		t.Errorf("%s commits, want 3", got)
	}
}

func TestALostAnswerDoesNotDoubleTheCommit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "old\n"})
	var lost sync.Once
	s.before = func(w http.ResponseWriter, r *http.Request) (answered bool) {
		if !strings.HasSuffix(r.URL.Path, "/git-receive-pack") || r.Method != http.MethodPost {
			return false
		}
		lost.Do(func() {
			answered = true
			body := &bytes.Buffer{}
			_, _ = body.ReadFrom(r.Body)
			s.gitIn(t, s.dir, body.String(), "receive-pack", "--stateless-rpc", s.dir)
			w.WriteHeader(http.StatusBadGateway)
		})
		return answered
	}
	c := s.request(map[string]string{"a": "new\n"})
	if _, err := s.forge.Commit(t.Context(), c); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("first attempt: %v, want unavailable", err)
	}
	head := s.rev(t, "main")
	sha, err := s.forge.Commit(t.Context(), c)
	if err != nil || sha != head || s.rev(t, "main") != head {
		t.Errorf("second attempt: %s, %v; want %s", sha, err, head)
	}
}

func TestManyWritersOfOneBranch(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "old\n"})
	const each = 4
	other := newForge(t, s.forge.credentials.all...) // another process
	var wg sync.WaitGroup
	for i := range each {
		for name, f := range map[string]*Forge{"one": s.forge, "two": other} {
			wg.Go(func() {
				c := s.request(map[string]string{fmt.Sprintf("%s-%d", name, i): "x\n"})
				c.Activity = fmt.Sprintf("exec-%s/0.%d", name, i)
				if _, err := f.Commit(t.Context(), c); err != nil {
					t.Errorf("%s %d: %v", name, i, err)
				}
			})
		}
	}
	wg.Wait()
	if got := strings.TrimSpace(s.git(t, s.dir, "rev-list", "--count", "main")); got != fmt.Sprint(1+2*each) {
		t.Errorf("%s commits, want %d", got, 1+2*each)
	}
	s.git(t, s.dir, "fsck", "--strict")
}

func TestARuleOfTheRepositoryIsNoRace(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "old\n"})
	hook := filepath.Join(s.dir, "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := s.forge.Commit(t.Context(), s.request(map[string]string{"a": "new\n"}))
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "pre-receive hook declined") {
		t.Errorf("error %v of class %v", err, fault.ClassOf(err))
	}
}

func TestCommitsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"file": "x\n", "dir/a": "x\n"})
	for name, tc := range map[string]struct {
		change func(*activity.CommitRequest)
		class  fault.Class
		want   string
	}{
		"branch missing":    {func(c *activity.CommitRequest) { c.Branch = "nope" }, fault.NotFound, `branch "nope" does not exist`},
		"branch impossible": {func(c *activity.CommitRequest) { c.Branch = "a..b" }, fault.Invalid, "branch: "},
		"no branch":         {func(c *activity.CommitRequest) { c.Branch = "" }, fault.Invalid, "branch: missing"},
		"no files":          {func(c *activity.CommitRequest) { c.Files = nil }, fault.Invalid, "files: missing"},
		"no message":        {func(c *activity.CommitRequest) { c.Message = " \n" }, fault.Invalid, "message: missing"},
		"path into .git":    {func(c *activity.CommitRequest) { c.Files = map[string][]byte{".git/config": nil} }, fault.Invalid, "path: "},
		"absolute path":     {func(c *activity.CommitRequest) { c.Files = map[string][]byte{"/etc/x": nil} }, fault.Invalid, "path: "},
		"below a file": {
			func(c *activity.CommitRequest) { c.Files = map[string][]byte{"file/x": nil} }, fault.Invalid,
			`found "file", which is no folder`,
		},
		"over a folder": {
			func(c *activity.CommitRequest) { c.Files = map[string][]byte{"dir": nil} }, fault.Invalid,
			`found "dir", which is no file`,
		},
		"trailer key": {func(c *activity.CommitRequest) { c.Trailers = map[string]string{"a b": "x"} }, fault.Invalid, "trailers: "},
		"trailer of our own": {
			func(c *activity.CommitRequest) { c.Trailers = map[string]string{"lockstep-activity": "x"} },
			fault.Invalid, "trailers: ",
		},
		"trailer of two lines": {func(c *activity.CommitRequest) { c.Trailers = map[string]string{"A": "x\ny"} }, fault.Invalid, "trailers.A: "},
	} {
		c := s.request(map[string]string{"file": "new\n"})
		tc.change(&c)
		if _, err := s.forge.Commit(t.Context(), c); !fault.Is(err, tc.class) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v of class %v, want %v: …%s…", name, err, fault.ClassOf(err), tc.class, tc.want)
		}
	}
}
