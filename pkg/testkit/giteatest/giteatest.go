// Package giteatest runs Gitea itself for tests, where LOCKSTEP_TEST_GITEA has the path of its program (`make forge-test`).
//
// It is for tests only.
package giteatest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// Server is a Gitea that runs until the test ends.
type Server struct {
	t *testing.T
	// Address is where it listens, as http://host:port or https://host:port.
	Address string
	// CA is the file of the authority of its certificate; empty without TLS.
	CA string
	// Tokens are of its users, by name. Each may do everything that its user may.
	Tokens map[string]string
	client *http.Client
}

// config has webhooks delivered to this machine, at once.
const config = `
APP_NAME = test
RUN_MODE = prod
RUN_USER = %[1]s
WORK_PATH = %[2]s
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
PROTOCOL = %[5]s
CERT_FILE = %[6]s
KEY_FILE = %[7]s
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %[3]s
ROOT_URL = %[5]s://127.0.0.1:%[3]s/
STATIC_ROOT_PATH = %[4]s
APP_DATA_PATH = %[2]s/data
DISABLE_SSH = true
OFFLINE_MODE = true
LFS_START_SERVER = false
[database]
DB_TYPE = sqlite3
PATH = %[2]s/gitea.db
SQLITE_JOURNAL_MODE = WAL
[repository]
ROOT = %[2]s/repos
DEFAULT_BRANCH = main
[security]
INSTALL_LOCK = true
SECRET_KEY = test-secret-key
INTERNAL_TOKEN = eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJuYmYiOjE3MDAwMDAwMDB9.test
PASSWORD_HASH_ALGO = pbkdf2_v1
[service]
DISABLE_REGISTRATION = true
[log]
LEVEL = Error
MODE = console
[cron]
ENABLED = false
[actions]
ENABLED = false
[packages]
ENABLED = false
[queue]
TYPE = channel
[webhook]
ALLOWED_HOST_LIST = loopback
`

// Start runs Gitea with these users, of whom the first is its administrator. Without a program of Gitea the test is skipped.
func Start(t *testing.T, users ...string) *Server {
	t.Helper()
	return start(t, certs.Files{}, users...)
}

// StartTLS is Start with an https address.
func StartTLS(t *testing.T, users ...string) *Server {
	t.Helper()
	return start(t, certstest.New(t).Files(t, t.TempDir(), "gitea"), users...)
}

func start(t *testing.T, certificate certs.Files, users ...string) *Server {
	t.Helper()
	program := os.Getenv("LOCKSTEP_TEST_GITEA")
	if program == "" {
		t.Skip("needs Gitea: make forge-test")
	}
	work := t.TempDir()
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	protocol := "http"
	if certificate.Cert != "" {
		protocol = "https"
	}
	s := &Server{t: t, Address: protocol + "://" + porttest.FreeAddress(t), CA: certificate.CA, Tokens: map[string]string{}, client: clientOf(t, certificate.CA)}
	port := s.Address[strings.LastIndex(s.Address, ":")+1:]
	file := filepath.Join(work, "app.ini")
	static := filepath.Join(filepath.Dir(program), "root")
	text := fmt.Sprintf(config, who.Username, work, port, static, protocol, certificate.Cert, certificate.Key)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		c := exec.Command(program, append(args, "-c", file)...)
		c.Env = []string{"HOME=" + work, "PATH=" + os.Getenv("PATH"), "GITEA_WORK_DIR=" + work, "GITEA_CUSTOM=" + filepath.Join(work, "custom")}
		return c
	}
	do := func(args ...string) string {
		out, err := command(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("gitea %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	do("migrate")
	for i, name := range users {
		do("admin", "user", "create", "--username", name, "--password", "Password-12345", "--email", name+"@example.com",
			"--must-change-password=false", fmt.Sprintf("--admin=%t", i == 0))
		// What Gitea logs may stand before and after it.
		s.Tokens[name] = regexp.MustCompile(`(?m)^[0-9a-f]{40}$`).FindString(
			do("admin", "user", "generate-access-token", "--username", name, "--token-name", "test", "--scopes", "all", "--raw"))
	}
	web := command("web")
	web.Stderr = os.Stderr
	if err := web.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = web.Process.Kill(); _ = web.Wait() })
	wait.For(t, "Gitea", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Address+"/api/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.client.Do(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK
	})
	return s
}

// clientOf trusts an authority, if there is one.
func clientOf(t *testing.T, authority string) *http.Client {
	t.Helper()
	if authority == "" {
		return http.DefaultClient
	}
	text, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

// Ask is what a user asks of the API. out, which may be nil, is what the answer is read into; it may be anything that is no failure.
func (s *Server) Ask(user, method, path string, in, out any) {
	s.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.Address+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "token "+s.Tokens[user])
	request.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text.String())
	}
	if out != nil && text.Len() > 0 {
		if err := json.Unmarshal(text.Bytes(), out); err != nil {
			s.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
}
