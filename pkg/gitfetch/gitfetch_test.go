package gitfetch_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/cgi" //nolint:gosec // Git's own server is a CGI program, and this is a test
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// remote is a repository with three commits behind Git's own HTTP backend.
type remote struct {
	// root has the repository, shop.git, and a checkout of it, work.
	root    string
	session transport.UploadPackSession
	refs    *packp.AdvRefs
	head    plumbing.Hash
}

func setup(t *testing.T, filtering string, cut bool) remote {
	t.Helper()
	root := t.TempDir()
	bare, work := filepath.Join(root, "shop.git"), filepath.Join(root, "work")
	run(t, "", "init", "--quiet", "--bare", "--initial-branch=main", bare)
	run(t, bare, "config", "uploadpack.allowFilter", filtering)
	run(t, "", "clone", "--quiet", bare, work)
	for _, text := range []string{"1", "2", "3"} {
		if err := os.WriteFile(filepath.Join(work, "file"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, work, "add", "file")
		run(t, work, "commit", "--quiet", "-m", text)
	}
	run(t, work, "push", "--quiet", "origin", "HEAD:main")
	backend := &cgi.Handler{
		Path: filepath.Join(run(t, "", "--exec-path"), "git-http-backend"),
		Env:  append(hermetic(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !cut || r.Method != http.MethodPost {
			backend.ServeHTTP(w, r)
			return
		}
		// The connection ends in the middle of the pack.
		answer := httptest.NewRecorder()
		backend.ServeHTTP(answer, r)
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
	}))
	t.Cleanup(web.Close)
	endpoint, err := transport.NewEndpoint(web.URL + "/shop.git")
	if err != nil {
		t.Fatal(err)
	}
	session, err := githttp.NewClient(&http.Client{Transport: gitfetch.Transport{Next: http.DefaultTransport}}).NewUploadPackSession(endpoint,
		nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	r := remote{root: root, session: session}
	err = gitfetch.NewBudget(gitfetch.Limits{}).Do(t.Context(), 1, func(ctx context.Context, _ *gitfetch.Share) (err error) {
		r.refs, err = session.AdvertisedReferencesContext(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.head = r.refs.References["refs/heads/main"]
	return r
}

func hermetic() []string {
	return []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent", "PATH=" + os.Getenv("PATH"),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return runIn(t, dir, "", args...)
}

func runIn(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, hermetic(), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestFetchedObjectsAreCounted counts the commits and the files that each kind of fetch gets.
func TestFetchedObjectsAreCounted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		filtering      string
		want           gitfetch.Want
		commits, blobs int
	}{
		{"everything", "true", gitfetch.Want{}, 3, 3},
		{"the last commit", "true", gitfetch.Want{Depth: 1}, 1, 1},
		{"trees alone", "true", gitfetch.Want{TreesAlone: true}, 3, 0},
		{"the last trees", "true", gitfetch.Want{Depth: 2, TreesAlone: true}, 2, 0},
		{"trees alone, of a server that cannot leave files out", "false", gitfetch.Want{TreesAlone: true}, 3, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, tt.filtering, false)
			tt.want.Objects = []plumbing.Hash{r.head}
			err := within(t, gitfetch.Limits{}, func(ctx context.Context, share *gitfetch.Share) error {
				objects := gitfetch.NewStore(share)
				if err := objects.Fetch(ctx, r.session, r.refs, tt.want); err != nil {
					return err
				}
				commits, blobs := 0, 0
				for id := r.head; objects.Has(id); commits++ {
					c, err := object.GetCommit(objects, id)
					if err != nil {
						return err
					}
					tree, err := c.Tree()
					if err != nil {
						return err
					}
					if objects.Has(tree.Entries[0].Hash) {
						blobs++
					}
					if id = plumbing.ZeroHash; len(c.ParentHashes) > 0 {
						id = c.ParentHashes[0]
					}
				}
				if commits != tt.commits || blobs != tt.blobs {
					t.Errorf("found %d commits and %d files, expected %d and %d", commits, blobs, tt.commits, tt.blobs)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// within runs f with a budget of its own.
func within(t *testing.T, limits gitfetch.Limits, f func(context.Context, *gitfetch.Share) error) error {
	t.Helper()
	return gitfetch.NewBudget(limits).Do(t.Context(), 1, f)
}

// fetch fetches the head.
func (r remote) fetch(ctx context.Context, share *gitfetch.Share) error {
	return gitfetch.NewStore(share).Fetch(ctx, r.session, r.refs, gitfetch.Want{Objects: []plumbing.Hash{r.head}})
}

func TestATruncatedPackIsRefused(t *testing.T) {
	t.Parallel()
	r := setup(t, "true", true)
	if err := within(t, gitfetch.Limits{}, r.fetch); !errors.Is(err, gitfetch.ErrInterrupted) {
		t.Errorf("found %v, expected that the pack did not come to its end", err)
	}
}

// TestErrorsOfTheSessionAreUnchanged: callers classify them.
func TestErrorsOfTheSessionAreUnchanged(t *testing.T) {
	t.Parallel()
	r := setup(t, "true", false)
	err := within(t, gitfetch.Limits{}, func(ctx context.Context, share *gitfetch.Share) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return r.fetch(ctx, share)
	})
	if err == nil || errors.Is(err, gitfetch.ErrInterrupted) {
		t.Errorf("found %v, expected what the transport says", err)
	}
}
