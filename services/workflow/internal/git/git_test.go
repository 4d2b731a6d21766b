package git

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cgi" //nolint:gosec // Git's own server is a CGI program
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// server is a bare repository behind Git's own HTTP backend, with a password.
type server struct {
	dir, url string
	forge    *Forge
	// before is called before a request is passed on; true means that it has answered.
	before func(http.ResponseWriter, *http.Request) bool
	// api is the forge's own interface, beside Git's protocol; nil for none.
	api http.HandlerFunc
	// fake is what serves it.
	fake *fakeForge
}

func setup(t *testing.T) *server {
	t.Helper()
	root := t.TempDir()
	s := &server{dir: filepath.Join(root, "shop.git")}
	s.git(t, "", "init", "--quiet", "--bare", "--initial-branch=main", s.dir)
	s.git(t, s.dir, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(s.git(t, "", "--exec-path")), "git-http-backend"),
		Env:  append(hermetic(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.before != nil && s.before(w, r) {
			return
		}
		if s.api != nil && (strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/2.0/")) {
			s.api(w, r)
			return
		}
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/team")
		switch user, password, _ := r.BasicAuth(); {
		case user == "" || password != "secret":
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/forbidden"):
			http.Error(w, "no", http.StatusForbidden)
		default:
			backend.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(web.Close)
	s.url = web.URL + "/shop.git"
	password := filepath.Join(root, "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.forge = newForge(t, Credential{URLPrefix: web.URL, Username: "lockstep", PasswordRef: "file:" + password})
	return s
}

func newForge(t *testing.T, all ...Credential) *Forge {
	t.Helper()
	f, err := New(Deps{
		HTTP: http.DefaultTransport, Budget: gitfetch.NewBudget(gitfetch.Limits{}),
		Credentials: all, AuthorName: "Lockstep", AuthorEmail: "lockstep@example.com",
		Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func hermetic() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
}

func (s *server) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return s.gitIn(t, dir, "", args...)
}

func (s *server) gitIn(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, hermetic(), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// add commits files directly into the repository, as another user would, and returns the commit.
func (s *server) add(t *testing.T, branch string, files map[string]string) string {
	t.Helper()
	return s.addAs(t, branch, "Ann <ann@example.com>", "hers\n", files)
}

// addAs is add by an author, with a message.
func (s *server) addAs(t *testing.T, branch, author, message string, files map[string]string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "commit refs/heads/%s\nauthor %s now\ncommitter Ann <ann@example.com> now\ndata %d\n%s\n", branch, author, len(message), message)
	if strings.TrimSpace(s.git(t, s.dir, "for-each-ref", "refs/heads/"+branch)) != "" {
		fmt.Fprintf(&b, "from refs/heads/%s^0\n", branch)
	}
	for path, content := range files {
		mode, name, found := strings.Cut(path, " ")
		if !found {
			mode, name = "100644", path
		}
		fmt.Fprintf(&b, "M %s inline %s\ndata %d\n%s\n", mode, name, len(content), content)
	}
	s.gitIn(t, s.dir, b.String(), "fast-import", "--quiet", "--date-format=now")
	return s.rev(t, branch)
}

func (s *server) rev(t *testing.T, ref string) string {
	t.Helper()
	return strings.TrimSpace(s.git(t, s.dir, "rev-parse", ref))
}

func (s *server) request(files map[string]string) activity.CommitRequest {
	c := activity.CommitRequest{
		RepoURL: s.url, Branch: "main", Message: "Deploy 7 to staging", Files: map[string][]byte{},
		Activity: "exec-1/0.3",
	}
	for path, content := range files {
		c.Files[path] = []byte(content)
	}
	return c
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.add(t, "main", map[string]string{"staging/api.yaml": "one\n"})
	s.git(t, s.dir, "-c", "user.name=x", "-c", "user.email=x@x", "tag", "-a", "v1", "-m", "v1", first)
	s.git(t, s.dir, "tag", "light", first)
	second := s.add(t, "main", map[string]string{"staging/api.yaml": "two\n"})
	s.add(t, "feature/x", map[string]string{"a": "b"})
	for ref, want := range map[string][2]string{
		"main": {"two\n", second}, "HEAD": {"two\n", second}, "refs/heads/main": {"two\n", second}, second: {"two\n", second},
		"v1": {"one\n", first}, "light": {"one\n", first}, "refs/tags/v1": {"one\n", first}, first: {"one\n", first},
	} {
		content, sha, err := s.forge.ReadFile(t.Context(), 1, s.url, ref, "staging/api.yaml")
		if err != nil || string(content) != want[0] || sha != want[1] {
			t.Errorf("at %s: %q, %s, %v; want %q, %s", ref, content, sha, err, want[0], want[1])
		}
	}
	// An older commit that is no head, from a server that serves any.
	s.add(t, "main", map[string]string{"staging/api.yaml": "three\n"})
	s.git(t, s.dir, "config", "uploadpack.allowReachableSHA1InWant", "true")
	if content, _, err := s.forge.ReadFile(t.Context(), 1, s.url, second, "staging/api.yaml"); err != nil || string(content) != "two\n" {
		t.Errorf("an older commit: %q, %v", content, err)
	}
}

// TestReadCommit: by branch and by id, with what its author claims; what does not exist is named (R3-28).
func TestReadCommit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.add(t, "main", map[string]string{"a": "one"})
	second := s.add(t, "main", map[string]string{"a": "two"})
	for ref, want := range map[string]string{"main": second, first: first} {
		c, err := s.forge.ReadCommit(t.Context(), 1, s.url, ref)
		if err != nil || c.SHA != want || c.Message == "" || c.Author.Name == "" || c.Committer.At.IsZero() {
			t.Errorf("%s: found %+v, %v, expected %s", ref, c, err, want)
		}
	}
	for _, ref := range []string{"none", strings.Repeat("a", 40)} {
		if _, err := s.forge.ReadCommit(t.Context(), 1, s.url, ref); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: found %v", ref, err)
		}
	}
}

func TestReadOfAnOlderCommitFromAServerThatServesHeadsOnly(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.add(t, "main", map[string]string{"a": "one\n"})
	s.add(t, "main", map[string]string{"a": "two\n"})
	content, sha, err := s.forge.ReadFile(t.Context(), 1, s.url, first, "a")
	if err != nil || string(content) != "one\n" || sha != first {
		t.Errorf("%q, %s, %v", content, sha, err)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	if _, _, err := s.forge.ReadFile(t.Context(), 1, s.url, "main", "a"); !fault.Is(err, fault.NotFound) ||
		!strings.Contains(err.Error(), "is empty") {
		t.Errorf("empty repository: %v", err)
	}
	s.add(t, "main", map[string]string{"dir/a": "x"})
	base := strings.TrimSuffix(s.url, "/shop.git")
	noCredentials := newForge(t)
	wrong := newForge(t, Credential{URLPrefix: base, Username: "x", PasswordRef: "file:" + filepath.Join(s.dir, "HEAD")})
	unreadable := newForge(t, Credential{URLPrefix: base, Username: "x", PasswordRef: "file:/nonexistent"})
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello</html>") }))
	t.Cleanup(page.Close)
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }))
	t.Cleanup(broken.Close)
	for _, tc := range []struct {
		name           string
		forge          *Forge
		url, ref, path string
		class          fault.Class
		want           string
	}{
		{"repository", s.forge, base + "/other.git", "main", "a", fault.NotFound, "repository " + base + "/other.git does not exist"},
		{"ref", s.forge, s.url, "nope", "a", fault.NotFound, `ref "nope" does not exist`},
		{"commit", s.forge, s.url, strings.Repeat("1", 40), "a", fault.NotFound, "commit 1111"},
		{"path", s.forge, s.url, "main", "dir/b", fault.NotFound, `path "dir/b" does not exist`},
		{"folder of path", s.forge, s.url, "main", "other/b", fault.NotFound, `path "other/b" does not exist`},
		{"a folder", s.forge, s.url, "main", "dir", fault.Invalid, "is no file"},
		{"no credentials", noCredentials, s.url, "main", "a", fault.Unauthenticated, "none are configured"},
		{"wrong credentials", wrong, s.url, "main", "a", fault.Unauthenticated, "does not accept"},
		{"unreadable password", unreadable, s.url, "main", "a", fault.Unauthenticated, "cannot be read from file:/nonexistent"},
		{"forbidden", s.forge, base + "/forbidden.git", "main", "a", fault.Denied, "may not read"},
		{"nobody there", s.forge, gone.URL + "/shop.git", "main", "a", fault.Unavailable, "does not answer"},
		{"no Git", s.forge, page.URL + "/shop.git", "main", "a", fault.NotFound, "does not answer like a Git repository"},
		{"server trouble", s.forge, broken.URL + "/shop.git", "main", "a", fault.Unavailable, "does not answer"},
		{"no scheme", s.forge, "example.com/shop.git", "main", "a", fault.Invalid, "repo_url: "},
		{"no key of SSH", s.forge, "git@example.com:shop.git", "main", "a", fault.Unauthenticated, "the organization has none for example.com"},
		{"a host in another script", s.forge, "https://ｇit.example.com/shop", "main", "a", fault.Invalid, "repo_url: found a host name that is not ASCII"},
		{"a file", s.forge, "file:///etc/passwd", "main", "a", fault.Invalid, "repo_url: "},
		{
			"password in the URL", s.forge, "https://u:hunter2@example.com/shop", "main", "a", fault.Invalid,
			"credentials belong into the configuration",
		},
		{"no path", s.forge, "https://example.com/", "main", "a", fault.Invalid, "expected the path of a repository"},
		{"path that leaves", s.forge, s.url, "main", "../a", fault.Invalid, "path: "},
		{"no ref", s.forge, s.url, "", "a", fault.NotFound, `ref ""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := tc.forge.ReadFile(t.Context(), 1, tc.url, tc.ref, tc.path)
			if !fault.Is(err, tc.class) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v of class %v, want %v: …%s…", err, fault.ClassOf(err), tc.class, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error shows the password: %v", err)
			}
		})
	}
}

func TestCredentialsAreOnlyForTheirHostAndPath(t *testing.T) {
	t.Setenv("LOCKSTEP_TEST_PASSWORD", "p")
	all := []Credential{
		{URLPrefix: "https://git.example.com", Username: "all", PasswordRef: "env:LOCKSTEP_TEST_PASSWORD"},
		{URLPrefix: "https://git.example.com/team/", Username: "team", PasswordRef: "env:LOCKSTEP_TEST_PASSWORD"},
		{URLPrefix: "https://git.example.com/team/two", Username: "two", PasswordRef: "env:LOCKSTEP_TEST_PASSWORD", Organizations: []int64{2, 3}},
		{URLPrefix: "https://other.example.com", Username: "other", PasswordRef: "env:LOCKSTEP_TEST_PASSWORD", Organizations: []int64{2}},
	}
	for raw, want := range map[string]string{
		"https://git.example.com/shop":          "all",
		"https://GIT.example.com/shop":          "all",
		"https://git.example.com/team/shop":     "team",
		"https://git.example.com/team/two":      "team",
		"https://other.example.com/shop":        "",
		"https://git.example.com/teammate/shop": "all",
		"https://git.example.com.evil.org/shop": "",
		"http://git.example.com/shop":           "",
		"https://git.example.com:8443/shop":     "",
	} {
		u, err := parseURL("repo_url", raw, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := credentials{all: all}.login(t.Context(), 1, u)
		if err != nil {
			t.Fatal(err)
		}
		if (got == nil) != (want == "") || (got != nil && got.Username != want) {
			t.Errorf("%s: %v, want user %q", raw, got, want)
		}
	}
	for organization, want := range map[int64]string{1: "team", 2: "two", 3: "two", 0: "team"} {
		u, err := parseURL("repo_url", "https://git.example.com/team/two/shop", false)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (credentials{all: all}).login(t.Context(), organization, u); err != nil || got == nil || got.Username != want {
			t.Errorf("organization %d logs in as %v, %v; expected %s", organization, got, err, want)
		}
	}
	if _, err := New(Deps{
		HTTP:        http.DefaultTransport,
		Credentials: []Credential{{URLPrefix: "https://x", PasswordRef: "env:X", Organizations: []int64{0}}},
	}); err == nil ||
		!strings.Contains(err.Error(), "organizations") {
		t.Errorf("credentials of organization 0: %v", err)
	}
	if _, err := New(Deps{
		HTTP:        http.DefaultTransport,
		Credentials: []Credential{{URLPrefix: "https://x", PasswordRef: "hunter2"}},
	}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password instead of a reference: %v", err)
	}
}

// TestACredentialForAllIsForOneOrganization: a program names any repository, so a credential without organizations is refused once there
// are several organizations. Those with organizations continue to work.
func TestACredentialForAllIsForOneOrganization(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.add(t, "main", map[string]string{"a": "x"})
	for _, forge := range Forges() {
		open := s.forge.credentials.all[0]
		open.Forge = forge
		several := false
		f := newForge(t, open)
		f.credentials.several = func(context.Context) (bool, error) { return several, nil }
		_, _, before := f.ReadFile(t.Context(), 1, s.url, "main", "a")
		if forge == Plain && before != nil || fault.Is(before, fault.Denied) {
			t.Errorf("%s, one organization: %v", forge, before)
		}
		several = true
		for organization := range int64(2) {
			_, _, err := f.ReadFile(t.Context(), organization+1, s.url, "main", "a")
			if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "git_credentials") {
				t.Errorf("%s, organization %d of several: found %v, expected that the credential is not used", forge, organization+1, err)
			}
		}
		c := s.request(map[string]string{"a": "new"})
		c.Organization = 2
		if _, err := f.Commit(t.Context(), c); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: a commit: %v", forge, err)
		}
		f.credentials.all[0].Organizations = []int64{1}
		if _, _, err := f.ReadFile(t.Context(), 1, s.url, "main", "a"); forge == Plain && err != nil || fault.Is(err, fault.Denied) {
			t.Errorf("%s, the organization that it is for: %v", forge, err)
		}
		f.credentials.several = func(context.Context) (bool, error) { return false, errors.New("no database") }
		f.credentials.all[0].Organizations = nil
		if _, _, err := f.ReadFile(t.Context(), 1, s.url, "main", "a"); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s, nobody knows how many organizations there are: %v", forge, err)
		}
	}
	wrong := Unscoped([]Credential{{URLPrefix: "https://a", Organizations: []int64{1}}, {URLPrefix: "https://b"}})
	if len(wrong) != 1 || wrong[0].Name != "git_credentials[1].organizations" {
		t.Errorf("found %v, expected the second to be named", wrong)
	}
}
