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
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// remote is a repository of three commits behind Git's own HTTP backend.
type remote struct {
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
		Path: filepath.Join(run(t, "", "--exec-path"), "git-http-backend"), Env: append(hermetic(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
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
	session, err := githttp.NewClient(http.DefaultClient).NewUploadPackSession(endpoint, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	refs, err := session.AdvertisedReferencesContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return remote{session, refs, refs.References["refs/heads/main"]}
}

func hermetic() []string {
	return []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent", "PATH=" + os.Getenv("PATH"),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, hermetic()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestWhatIsWantedComes counts the commits and the files that are there afterwards.
func TestWhatIsWantedComes(t *testing.T) {
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
			objects := memory.NewStorage()
			tt.want.Commits = []plumbing.Hash{r.head}
			if err := gitfetch.Into(t.Context(), r.session, r.refs, objects, tt.want); err != nil {
				t.Fatal(err)
			}
			if len(objects.Commits) != tt.commits || len(objects.Blobs) != tt.blobs {
				t.Errorf("found %d commits and %d files, expected %d and %d", len(objects.Commits), len(objects.Blobs), tt.commits, tt.blobs)
			}
			c, err := object.GetCommit(objects, r.head)
			if err != nil || strings.TrimSpace(c.Message) != "3" {
				t.Errorf("head: found %v, %v", c, err)
			}
		})
	}
}

func TestAPackThatIsCutOffIsNone(t *testing.T) {
	t.Parallel()
	r := setup(t, "true", true)
	err := gitfetch.Into(t.Context(), r.session, r.refs, memory.NewStorage(), gitfetch.Want{Commits: []plumbing.Hash{r.head}})
	if !errors.Is(err, gitfetch.ErrInterrupted) {
		t.Errorf("found %v, expected that the pack did not come to its end", err)
	}
}

// TestWhatTheSessionSaysIsLeftAsItIs: callers class it.
func TestWhatTheSessionSaysIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	r := setup(t, "true", false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := gitfetch.Into(ctx, r.session, r.refs, memory.NewStorage(), gitfetch.Want{Commits: []plumbing.Hash{r.head}})
	if err == nil || errors.Is(err, gitfetch.ErrInterrupted) {
		t.Errorf("found %v, expected what the transport says", err)
	}
}
