package git

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// bomb is a repository of a small file and one of 300 MB of zeros, which git packs into 300 kB.
func bomb(t *testing.T) *server {
	t.Helper()
	const size = 300 << 20
	s := setup(t)
	cmd := exec.CommandContext(t.Context(), "git", "fast-import", "--quiet", "--date-format=now")
	cmd.Dir, cmd.Env = s.dir, hermetic()
	cmd.Stdin = io.MultiReader(
		strings.NewReader("commit refs/heads/main\ncommitter Ann <ann@example.com> now\ndata 5\nhers\n\nM 100644 inline small\ndata 3\nabc\nM 100644 inline zeros\ndata "+strconv.Itoa(size)+"\n"),
		io.LimitReader(zeros{}, size), strings.NewReader("\n"),
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v\n%s", err, out)
	}
	return s
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// childEnv holds what the process started by a test does, and with which repository.
const childEnv = "LOCKSTEP_TEST_GIT"

// TestChild is what the test below runs in a process of its own, because the memory of this one is that of all tests.
func TestChild(t *testing.T) { //nolint:paralleltest // alone in its process
	operation, where, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		t.Skip("no process of TestAFetchUsesBoundedMemory")
	}
	port, err := strconv.Atoi(where)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/shop.git", port)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newForge(t, Credential{URLPrefix: url, Username: "lockstep", PasswordRef: "file:" + password})
	switch operation {
	case "commit":
		_, err = f.Commit(t.Context(), activity.CommitRequest{
			RepoURL: url, Branch: "main", Message: "Deploy", Files: map[string][]byte{"small": []byte("new\n")}, Activity: "exec-1/0.3",
		})
	case "small":
		read(t, f, url, "small")
		return
	default:
		read(t, f, url, "zeros")
		return
	}
	report(t, err)
}

// read prints the outcome of reading a file.
func read(t *testing.T, f *Forge, url, path string) {
	t.Helper()
	content, _, err := f.ReadFile(t.Context(), 1, url, "main", path)
	fmt.Printf("read: %d\n", len(content))
	report(t, err)
}

// report prints the outcome and the peak of memory for the process that has started this one.
func report(t *testing.T, err error) {
	t.Helper()
	fmt.Printf("error: %v %v\npeak: %d\n", fault.ClassOf(err), err, peak(t))
}

// peak is the most memory that this process has had, in MiB.
func peak(t *testing.T) int {
	t.Helper()
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = status.Close() }()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if kib, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(kib, "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n >> 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestAFetchUsesBoundedMemory: whatever is in a repository, and whatever its server can leave out, an operation on another file of it needs
// little memory, and one on the file itself is refused with the limit.
func TestAFetchUsesBoundedMemory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	original := bomb(t)
	for name, config := range map[string][]string{
		"a server that leaves files out and sends them by name": {"uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"},
		"a server that only leaves files out":                   {"uploadpack.allowFilter"},
		"a server that can do neither":                          nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			s.git(t, s.dir, "fetch", "--quiet", original.dir, "main:main")
			for _, key := range config {
				s.git(t, s.dir, "config", key, "true")
			}
			_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/shop.git"))
			if err != nil {
				t.Fatal(err)
			}
			// The commit comes last: it changes the small file.
			for _, tt := range []struct{ operation, want string }{
				{"small", "read: 3\nerror: internal <nil>\n"},
				{"zeros", "read: 0\nerror: refused " + s.url +
					" cannot be read: the repository needs 314572800 bytes of memory or more, found room for"},
				{"commit", "error: internal <nil>\n"},
			} {
				operation, want := tt.operation, tt.want
				cmd := exec.CommandContext(t.Context(), executable, "-test.run=^TestChild$", "-test.v")
				cmd.Env = append(os.Environ(), childEnv+"="+operation+" "+port)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", operation, err, out)
				}
				most := regexp.MustCompile(`peak: (\d+)`).FindSubmatch(out)
				if !strings.Contains(string(out), want) || most == nil {
					t.Fatalf("%s: found\n%s\nexpected %s", operation, out, want)
				}
				if n, _ := strconv.Atoi(string(most[1])); n > 160 {
					t.Errorf("%s: the process had %d MiB, expected at most 160", operation, n)
				}
			}
		})
	}
}

// TestAnAnswerOfAForgeIsBounded: its interface sends files as JSON, which is decoded in memory.
func TestAnAnswerOfAForgeIsBounded(t *testing.T) {
	t.Parallel()
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"`)
		_, _ = io.Copy(w, io.LimitReader(letters{}, 1<<40))
	}))
	t.Cleanup(endless.Close)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, forge := range Forges() {
		f := newForge(t, Credential{URLPrefix: endless.URL, Username: "x", PasswordRef: "file:" + password, Forge: forge})
		_, _, err := f.ReadFile(t.Context(), 1, endless.URL+"/shop", "main", "a")
		if forge == Plain || forge == Bitbucket { // what does not begin like refs is not read on
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: found %v, expected that it is no Git", forge, err)
			}
			continue
		}
		if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "git_limits.memory_bytes") {
			t.Errorf("%s: found %v of class %v, expected it refused with the limit", forge, err, fault.ClassOf(err))
		}
	}
}

// TestRefsAreBounded: a server may say that it has any number of them.
func TestRefsAreBounded(t *testing.T) {
	t.Parallel()
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		line := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
		_, err := io.WriteString(w, line("# service=git-upload-pack\n")+"0000"+line(strings.Repeat("1", 40)+" refs/heads/main\x00agent=x\n"))
		for i := 0; err == nil && i < 100_000_000; i++ {
			_, err = io.WriteString(w, line(fmt.Sprintf("%040x refs/heads/%d\n", i, i)))
		}
	}))
	t.Cleanup(endless.Close)
	_, _, err := newForge(t).ReadFile(t.Context(), 1, endless.URL+"/shop", "main", "a")
	if !fault.Is(err, fault.Refused) || !strings.Contains(err.Error(), "git_limits.memory_bytes") {
		t.Errorf("found %v of class %v, expected it refused with the limit", err, fault.ClassOf(err))
	}
}

type letters struct{}

// Read implements io.Reader.
func (letters) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a'
	}
	return len(b), nil
}
