package git_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cgi" //nolint:gosec // Git's own server is a CGI program, and this is a test
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/git"
)

// forge is a bare repository behind Git's own HTTP backend, with a password.
type forge struct {
	dir, work, url string
	repositories   *git.Repositories
	// packs counts the fetches beyond refs.
	packs atomic.Int64
}

func setup(t *testing.T, filtering bool) *forge {
	t.Helper()
	root := t.TempDir()
	f := &forge{dir: filepath.Join(root, "shop.git"), work: filepath.Join(root, "work")}
	f.git(t, "", "init", "--quiet", "--bare", "--initial-branch=main", f.dir)
	f.git(t, f.dir, "config", "uploadpack.allowFilter", fmt.Sprint(filtering))
	f.git(t, "", "clone", "--quiet", f.dir, f.work)
	backend := &cgi.Handler{
		Path: filepath.Join(f.git(t, "", "--exec-path"), "git-http-backend"),
		Env:  append(hermetic(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost {
			f.packs.Add(1)
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	f.url = web.URL + "/shop.git"
	f.repositories = git.New(git.Deps{
		Transport: http.DefaultTransport, Budget: gitfetch.NewBudget(gitfetch.Limits{}),
		Login: func(_ int64, repository string) (string, string, error) {
			if want := strings.TrimPrefix(web.URL, "http://") + "/shop"; repository != want {
				t.Errorf("asked for the account of %q, want %q", repository, want)
			}
			return "", "secret", nil
		},
	})
	return f
}

func hermetic() []string {
	return []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent", "PATH=" + os.Getenv("PATH"),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
}

func (f *forge) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, hermetic()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit changes files, each with distinct content, and returns the commit.
func (f *forge) commit(t *testing.T, files ...string) string {
	t.Helper()
	for _, name := range files {
		file := filepath.Join(f.work, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(file)
		if err := os.WriteFile(file, append(before, '.'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.git(t, f.work, "add", "--all")
	f.git(t, f.work, "commit", "--quiet", "-m", "change")
	f.git(t, f.work, "push", "--quiet", "origin", "HEAD:main")
	return f.git(t, f.work, "rev-parse", "HEAD")
}

func (f *forge) source(config string) core.Source {
	return core.Source{
		ID: 1, Organization: 1, Ref: source.Git,
		Config: json.RawMessage(fmt.Sprintf(`{"repository":%q,`, f.url) + config + `}`),
	}
}

// look polls, and returns the commit found, "" for none.
func (f *forge) look(t *testing.T, s *core.Source) string {
	t.Helper()
	finding, err := f.repositories.Find(t.Context(), *s)
	if err != nil {
		t.Fatal(err)
	}
	s.Memory = finding.Memory
	if finding.Found == nil {
		return ""
	}
	return finding.Found.Digest
}

func TestABranchIsFollowed(t *testing.T) {
	t.Parallel()
	f := setup(t, true)
	first := f.commit(t, "a")
	s := f.source(`"branch":"main"`)
	if got := f.look(t, &s); got != first {
		t.Errorf("found %q, want %s", got, first)
	}
	if got := f.look(t, &s); got != first { // the poller reports it once
		t.Errorf("found %q, want %s", got, first)
	}
	f.commit(t, "b")
	last := f.commit(t, "c")
	if got := f.look(t, &s); got != last {
		t.Errorf("found %q, want %s", got, last)
	}
	if n := f.packs.Load(); n != 2 {
		t.Errorf("%d packs were fetched; want one for the first commit, and one when the branch had changed", n)
	}
}

// R4-15: an artifact has the message of its commit, which may decide how a rollout goes: of a branch and of a tag, also of an annotated
// one.
func TestAnArtifactHasTheMessageOfItsCommit(t *testing.T) {
	t.Parallel()
	for _, filtering := range []bool{true, false} {
		f := setup(t, filtering)
		commit := func(text string, tag ...string) {
			t.Helper()
			f.commit(t, "a")
			f.amend(t, text)
			f.git(t, f.work, append([]string{"tag"}, tag...)...)
			f.git(t, f.work, "push", "--quiet", "--tags")
		}
		look := func(s *core.Source) string {
			t.Helper()
			finding, err := f.repositories.Find(t.Context(), *s)
			if err != nil || finding.Found == nil {
				t.Fatalf("found %+v, %v", finding, err)
			}
			s.Memory = finding.Memory
			return finding.Found.Message
		}
		branch, tags := f.source(`"branch":"main"`), f.source(`"follow":"tags"`)
		commit("fix: one\n\nwith a body", "v1.0.0")
		for _, s := range []*core.Source{&branch, &tags} {
			if got := look(s); got != "fix: one\n\nwith a body\n" {
				t.Errorf("the first commit: found %q", got)
			}
		}
		commit("feat: two", "-a", "-m", "annotated", "v1.1.0")
		for _, s := range []*core.Source{&branch, &tags} {
			if got := look(s); got != "feat: two\n" {
				t.Errorf("the next commit: found %q", got)
			}
		}
		commit(strings.Repeat("ü", 4000), "v1.2.0")
		if got := look(&tags); got != strings.Repeat("ü", 2048) {
			t.Errorf("a long message: found %d bytes", len(got))
		}
	}
}

// R4-07: commits of Lockstep itself, which have its trailers, are no artifacts, with filters or without: a rollout that commits
// must not begin another one. What others commit counts, also beneath a commit of Lockstep, but only for the files that they changed.
func TestCommitsOfLockstepAreNoArtifacts(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"filtered": `"branch":"main","paths":"deploy/**","ignore_paths":"deploy/notes/**"`, "unfiltered": `"branch":"main"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, true)
			first := f.commit(t, "deploy/a")
			s := f.source(config)
			if got := f.look(t, &s); got != first {
				t.Fatalf("found %q, want %s", got, first)
			}
			f.commit(t, "deploy/a")
			f.amend(t, "Deploy set-2 to production\n\nLockstep-Rollout: 7\nLockstep-Activity: rollout-7/0.1")
			if got := f.look(t, &s); got != "" {
				t.Errorf("after a commit of Lockstep: found %q; want none", got)
			}
			theirs := f.commit(t, "deploy/b")
			f.commit(t, "deploy/a")
			last := f.amend(t, "Deploy set-3\n\nLockstep-Rollout: 8")
			if got := f.look(t, &s); got != last {
				t.Errorf("after %s of another and one of Lockstep: found %q; want %s", theirs, got, last)
			}
			f.commit(t, "deploy/a")
			f.amend(t, "Deploy set-4\n\nLockstep-Rollout: 9")
			notes := f.commit(t, "deploy/notes/x") // of others, and ignored; only without filters it counts
			want := map[string]string{"filtered": "", "unfiltered": notes}[name]
			if got := f.look(t, &s); got != want {
				t.Errorf("after an ignored file of another: found %q; want %q", got, want)
			}
			quoted := f.commit(t, "deploy/c")
			f.amend(t, "Say what Lockstep-Rollout: 9 was about\n\nIt deployed set-4.")
			if got := f.look(t, &s); got == "" || got == quoted {
				t.Errorf("a message that mentions a trailer: found %q; want the commit", got)
			}
		})
	}
}

// amend changes the message of the last commit, and answers its SHA.
func (f *forge) amend(t *testing.T, message string) string {
	t.Helper()
	f.git(t, f.work, "commit", "-q", "--amend", "-m", message)
	f.git(t, f.work, "push", "-q", "-f", "origin", "HEAD:main")
	return strings.TrimSpace(f.git(t, f.work, "rev-parse", "HEAD"))
}

// R4-08: of a commit, and of all since the one before, each file is judged on its own. TestAnIgnoredFileHidesNoRelevantOne also runs
// against a server that cannot omit files.
func TestAnIgnoredFileHidesNoRelevantOne(t *testing.T) {
	t.Parallel()
	for _, filtering := range []bool{true, false} {
		t.Run(fmt.Sprintf("filtering %v", filtering), func(t *testing.T) {
			t.Parallel()
			f := setup(t, filtering)
			first := f.commit(t, "README.md")
			s := f.source(`"branch":"main","paths":"deploy/**","ignore_paths":"**/*.md"`)
			if got := f.look(t, &s); got != first {
				t.Errorf("the first commit seen is %q, want %s", got, first)
			}
			f.commit(t, "src/main.go", "deploy/README.md")
			for range 2 {
				if got := f.look(t, &s); got != "" {
					t.Errorf("found %s, whose files do not count", got)
				}
			}
			f.commit(t, "deploy/README.md", "deploy/api/values.yaml")
			last := f.commit(t, "README.md")
			for range 2 {
				if got := f.look(t, &s); got != last {
					t.Errorf("found %q, want %s: a file that counts was changed on the way", got, last)
				}
			}
			f.git(t, f.work, "mv", "deploy/api/values.yaml", "values.yaml")
			if got, moved := f.look(t, &s), f.commit(t, "src/main.go"); got != last || f.look(t, &s) != moved {
				t.Error("a file that was moved away is no change")
			}
		})
	}
}

func TestARewrittenBranchCounts(t *testing.T) {
	t.Parallel()
	f := setup(t, true)
	f.commit(t, "deploy/a")
	s := f.source(`"branch":"main","paths":"deploy/**"`)
	f.look(t, &s)
	f.git(t, f.work, "commit", "--quiet", "--amend", "-m", "rewritten")
	f.git(t, f.work, "push", "--quiet", "--force", "origin", "HEAD:main")
	if got, want := f.look(t, &s), f.git(t, f.work, "rev-parse", "HEAD"); got != want {
		t.Errorf("found %q, want %s", got, want)
	}
}

func TestTagsAreVersions(t *testing.T) {
	t.Parallel()
	f := setup(t, true)
	first := f.commit(t, "a")
	f.git(t, f.work, "tag", "v1.2.0")
	second := f.commit(t, "b")
	f.git(t, f.work, "tag", "-a", "-m", "annotated", "v1.10.0")
	f.commit(t, "c")
	f.git(t, f.work, "tag", "v2.0.0-rc.1")
	f.git(t, f.work, "tag", "nightly")
	f.git(t, f.work, "push", "--quiet", "--tags")
	for config, want := range map[string]string{
		`"follow":"tags"`: second, `"follow":"tags","range":"<1.5"`: first,
		`"follow":"tags","range":">=2"`: "",
	} {
		s := f.source(config)
		if got := f.look(t, &s); got != want {
			t.Errorf("%s: found %q, want %q", config, got, want)
		}
	}
}

func TestPollsThatFailPermanently(t *testing.T) {
	t.Parallel()
	f := setup(t, true)
	f.commit(t, "a")
	wrong := git.New(git.Deps{
		Transport: http.DefaultTransport, Budget: gitfetch.NewBudget(gitfetch.Limits{}),
		Login: func(int64, string) (string, string, error) { return "", "wrong", nil },
	})
	for name, tt := range map[string]struct {
		by     *git.Repositories
		source core.Source
		class  fault.Class
	}{
		"no branch":      {f.repositories, f.source(`"branch":"none"`), fault.NotFound},
		"wrong password": {wrong, f.source(`"branch":"main"`), fault.Denied},
		"bad source":     {f.repositories, f.source(`"follow":"branch"`), fault.Invalid},
	} {
		if _, err := tt.by.Find(t.Context(), tt.source); !fault.Is(err, tt.class) {
			t.Errorf("%s: %v (%v), want %v", name, err, fault.ClassOf(err), tt.class)
		}
	}
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	open := git.New(git.Deps{
		Transport: http.DefaultTransport, Budget: gitfetch.NewBudget(gitfetch.Limits{}),
		Login: func(int64, string) (string, string, error) { return "", "", nil },
	})
	s := core.Source{Ref: source.Git, Config: json.RawMessage(fmt.Sprintf(`{"repository":%q,"branch":"main"}`, elsewhere.URL+"/x"))}
	if _, err := open.Find(t.Context(), s); !fault.Is(err, fault.NotFound) {
		t.Errorf("no repository: %v (%v)", err, fault.ClassOf(err))
	}
	elsewhere.Close()
	if _, err := open.Find(t.Context(), s); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no server: %v (%v)", err, fault.ClassOf(err))
	}
}

// R4-26: an artifact of a branch has the files that have changed since the one reported before, as far as the source wants them.
func TestAnArtifactHasTheFilesThatChanged(t *testing.T) {
	t.Parallel()
	f := setup(t, true)
	first := f.commit(t, "deploy/a")
	s, plain := f.source(`"branch":"main","paths":"deploy/**"`), f.source(`"branch":"main"`)
	look := func(s *core.Source) (since, files string) {
		t.Helper()
		finding, err := f.repositories.Find(t.Context(), *s)
		if err != nil {
			t.Fatal(err)
		}
		if s.Memory = finding.Memory; finding.Found == nil {
			return "", "nothing"
		}
		return finding.Found.Since, finding.Found.Files
	}
	want := func(s *core.Source, since, files string) {
		t.Helper()
		if gotSince, got := look(s); gotSince != since || got != files {
			t.Errorf("found %q since %q; want %q since %q", got, gotSince, files, since)
		}
	}
	want(&s, "", "")
	want(&plain, "", "")
	f.commit(t, "docs/a")
	want(&s, "", "nothing")
	last := f.commit(t, "deploy/b", "deploy/a", "docs/b")
	want(&s, first, "deploy/a\ndeploy/b")
	want(&plain, first, "deploy/a\ndeploy/b\ndocs/a\ndocs/b")
	many := make([]string, 501) // one more than are kept
	for i := range many {
		many[i] = fmt.Sprintf("deploy/many/%d", i)
	}
	f.commit(t, many...)
	want(&s, "", "")
	// Another branch that became this one: what was reported before is not among its commits.
	f.git(t, f.work, "checkout", "--quiet", "--orphan", "other")
	f.git(t, f.work, "commit", "--quiet", "-m", "another beginning")
	f.git(t, f.work, "push", "--quiet", "--force", "origin", "HEAD:main")
	want(&plain, "", "")
	if last == first {
		t.Error("nothing was committed")
	}
}

// R4-26: an artifact of a branch has the messages of all commits since the one reported before, also of those that were pushed together
// with another one, or merged; none where not all are known.
func TestAnArtifactHasTheMessagesOfAllNewCommits(t *testing.T) {
	t.Parallel()
	f := setup(t, true)
	f.commit(t, "deploy/a")
	s, plain := f.source(`"branch":"main","paths":"deploy/**"`), f.source(`"branch":"main"`)
	want := func(s *core.Source, messages ...string) {
		t.Helper()
		finding, err := f.repositories.Find(t.Context(), *s)
		if err != nil || finding.Found == nil {
			t.Fatalf("found %+v, %v; want an artifact", finding.Found, err)
		}
		s.Memory = finding.Memory
		got := strings.Split(strings.ReplaceAll(finding.Found.Messages, "\n", ""), "\x00")
		slices.Sort(got)
		slices.Sort(messages)
		if !slices.Equal(got, messages) {
			t.Errorf("found the messages %q; want %q", got, messages)
		}
	}
	both := func(messages ...string) {
		t.Helper()
		want(&s, messages...)
		want(&plain, messages...)
	}
	empty := func(message string) {
		t.Helper()
		f.git(t, f.work, "commit", "--quiet", "--allow-empty", "-m", message)
	}
	push := func() { f.git(t, f.work, "push", "--quiet", "--force", "origin", "HEAD:main") }
	both("")
	f.commit(t, "deploy/dangerous")
	empty("docs: words")
	push()
	both("change", "docs: words")
	// A branch that begins before what was reported, and is merged.
	f.git(t, f.work, "checkout", "--quiet", "-b", "side", "HEAD~2")
	empty("feat: side")
	f.git(t, f.work, "checkout", "--quiet", "-")
	f.commit(t, "deploy/a")
	f.git(t, f.work, "merge", "--quiet", "--no-ff", "-m", "docs: merge", "side")
	push()
	both("change", "docs: merge", "feat: side")
	f.commit(t, "deploy/a")
	f.amend(t, strings.Repeat("ü", 600))
	both(strings.Repeat("ü", 500))
	// A rewritten branch: what was reported is not among its commits.
	f.commit(t, "deploy/a")
	f.git(t, f.work, "commit", "--quiet", "--amend", "-m", "seen")
	push()
	both("seen")
	f.git(t, f.work, "commit", "--quiet", "--amend", "-m", "docs: rewritten")
	push()
	f.commit(t, "deploy/a")
	both("")
	for range 100 {
		empty("docs: many")
	}
	f.commit(t, "deploy/a")
	both("")
	for range 99 {
		empty("docs: as many as are kept")
	}
	f.commit(t, "deploy/a")
	both(append(slices.Repeat([]string{"docs: as many as are kept"}, 99), "change")...)
}

// R4-28: the commit of a proposal that no rollout has made is new once it is merged, also where that leaves its trailers at the head of the
// branch; that of a rollout is not.
func TestAMergedProposalIsNew(t *testing.T) {
	t.Parallel()
	f := setup(t, true)
	f.commit(t, "deploy/a")
	for _, config := range []string{`"branch":"main"`, `"branch":"main","paths":"deploy/**"`} {
		s := f.source(config)
		f.look(t, &s)
		for message, isNew := range map[string]bool{
			"Update\n\nLockstep-Event-Id: 7\nLockstep-Proposal: o1/edit-1/change\nLockstep-Trigger: builds": true,
			"Update\n\nLockstep-Activity: edit-1/0.1\nLockstep-Event-Id: 7\nLockstep-Trigger: builds":       false,
			"Deploy\n\nLockstep-Proposal: o1/rollout-7/production\nLockstep-Rollout: 7":                     false,
		} {
			f.commit(t, "deploy/a")
			made := f.amend(t, message)
			if got := f.look(t, &s); (got == made) != isNew {
				t.Errorf("%s, %q: found %q; want that it is new: %v", config, message, got, isNew)
			}
		}
	}
}
