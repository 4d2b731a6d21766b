// Package gitserver serves bare Git repositories over smart HTTP with passwords: the forge of `lockstep dev`, the demo and
// the tests. Git itself does the work, through its own http-backend.
//
// It is not a forge: it has no pull requests, no API and one user.
package gitserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cgi" //nolint:gosec // the hole it names was closed in Go 1.6.3
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
)

// Config says what to serve, where and to whom.
type Config struct {
	// Address to listen on, host:port.
	Address string
	// Dir holds the repositories, one folder <name>.git each.
	Dir string
	// Username and Password that every request has to carry.
	Username, Password string
}

// Run serves until ctx ends. ready is called once connections are accepted.
func Run(ctx context.Context, c Config, log *slog.Logger, ready func()) error {
	handler, err := Handler(ctx, c)
	if err != nil {
		return err
	}
	listener, err := rpc.Listen(ctx, clock.System(), c.Address)
	if err != nil {
		return err
	}
	ready()
	return rpc.ServeHTTP(ctx, log, listener, handler)
}

// Handler serves c.Dir at the root; c.Address is not looked at. A push to a repository that is not there makes it.
func Handler(ctx context.Context, c Config) (http.Handler, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder %q: %w", c.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("folder %q: %w", c.Dir, err)
	}
	execPath, err := git(ctx, "", nil, "--exec-path")
	if err != nil {
		return nil, err
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(execPath), "git-http-backend"),
		Env:  append(hermetic(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"),
		Root: "/",
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		username, password, _ := r.BasicAuth()
		if !equal(username, c.Username) || !equal(password, c.Password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "username and password required", http.StatusUnauthorized)
			return
		}
		if err := createForPush(r.Context(), dir, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		done, err := spool(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer done()
		// A user who has signed in may push: http-backend looks at REMOTE_USER.
		signedIn := *backend
		signedIn.Env = append(slices.Clone(backend.Env), "REMOTE_USER="+c.Username)
		signedIn.ServeHTTP(w, r)
	}), nil
}

// equal compares in constant time whatever the lengths are.
func equal(got, want string) bool {
	g, w := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(g[:], w[:]) == 1
}

// repositoryName is what a repository may be called: nothing that leaves the folder.
var repositoryName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Create makes the repository <dir>/<name>.git with one commit of files on branch main. Where it exists already it is
// left as it is.
func Create(ctx context.Context, dir, name string, files map[string]string) error {
	return create(ctx, dir, name, initialCommit(files))
}

// create makes a repository of what a `git fast-import` stream says; nil is an empty one.
func create(ctx context.Context, dir, name string, stream []byte) error {
	if !repositoryName.MatchString(name) {
		return fmt.Errorf("repository name %q: expected lower-case letters, digits and hyphens", name)
	}
	path := filepath.Join(dir, name+".git")
	if _, err := os.Stat(path); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("repository %q: %w", name, err)
	}
	// Made under another name first, so that a crash leaves no half of a repository behind.
	building, err := os.MkdirTemp(dir, ".building-*")
	if err != nil {
		return fmt.Errorf("repository %q: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(building) }()
	if _, err := git(ctx, building, nil, "init", "--quiet", "--bare", "--initial-branch=main", "."); err != nil {
		return err
	}
	if stream != nil {
		if _, err := git(ctx, building, stream, "fast-import", "--quiet", "--date-format=now"); err != nil {
			return err
		}
	}
	if err := os.Rename(building, path); err != nil {
		return fmt.Errorf("repository %q: %w", name, err)
	}
	return nil
}

// initialCommit is the stream that `git fast-import` reads.
func initialCommit(files map[string]string) []byte {
	const message = "Add the manifests\n"
	var b strings.Builder
	fmt.Fprintf(&b, "commit refs/heads/main\ncommitter Platform Team <platform@example.com> now\ndata %d\n%s", len(message), message)
	paths := make([]string, 0, len(files))
	for path := range files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		fmt.Fprintf(&b, "M 100644 inline %s\ndata %d\n%s\n", path, len(files[path]), files[path])
	}
	return []byte(b.String())
}

// Commit is one commit of a branch, as an observer from outside sees it.
type Commit struct {
	SHA, Subject string
	// Body is the message without its first line; trailers are at its end.
	Body string
	// Paths are the files that the commit changed.
	Paths []string
}

// Log lists the commits of main, newest first, by looking at the repository itself.
func Log(ctx context.Context, dir, name string) ([]Commit, error) {
	out, err := git(ctx, filepath.Join(dir, name+".git"), nil, "log", "--first-parent", "--name-only",
		"--format=%x00%H%x01%s%x01%b%x01", "main")
	if err != nil {
		return nil, err
	}
	var commits []Commit
	for record := range strings.SplitSeq(strings.TrimPrefix(out, "\x00"), "\x00") {
		parts := strings.SplitN(record, "\x01", 4)
		if len(parts) != 4 {
			return nil, fmt.Errorf("log of %q: found %q, expected four fields", name, record)
		}
		commits = append(commits, Commit{SHA: parts[0], Subject: parts[1], Body: strings.TrimSpace(parts[2]), Paths: strings.Fields(parts[3])})
	}
	return commits, nil
}

// git runs one Git command and answers what it printed.
func git(ctx context.Context, dir string, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // the arguments are ours
	cmd.Dir = dir
	cmd.Env = append(hermetic(), "PATH="+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(string(stdin))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// hermetic keeps the configuration of the machine and its user out.
func hermetic() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + os.TempDir(), "LC_ALL=C"}
}
