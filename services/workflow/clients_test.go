package workflow_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	workflow "github.com/lockstep-cd/lockstep/services/workflow"
)

// clientToken is that of the clients in docs/examples: it starts workflows in one organization.
const clientToken = "the-token-of-a-client"

// TestTheClientsInTheExamples: the clients in docs/examples/client, each made from the protocol buffers here, start a workflow, call it,
// follow it to its end and understand an error (issue 18, item 11). What is missing on a machine is left out, unless LOCKSTEP_CLIENTS
// says that all are to be there, as `make clients` does.
func TestTheClientsInTheExamples(t *testing.T) {
	t.Parallel()
	s := startWith(t, func(c *workflow.Config) {
		sum := sha256.Sum256([]byte(clientToken))
		c.Tokens = append(c.Tokens, workflow.AccessToken{
			Name: "client", Scope: "start", Organization: organization, SHA256: hex.EncodeToString(sum[:]),
		})
	})
	program, err := filepath.Abs("../../docs/examples/client/greet.star")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		// client is the command that runs the client, and how it spells that a workflow exists.
		client func(*testing.T) *exec.Cmd
		exists string
	}{
		"go":         {clientInGo, "AlreadyExists"},
		"python":     {clientInPython, "ALREADY_EXISTS"},
		"typescript": {clientInTypeScript, "AlreadyExists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := tt.client(t)
			command.Args = append(command.Args, s.config.GRPCAddress, "greeting-"+name, program, "--plain")
			command.Env, command.Stderr = append(command.Environ(), "LOCKSTEP_TOKEN="+clientToken), os.Stderr
			out, err := command.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want := "started\nHello, Ada\nGood bye\nWORKFLOW_STATE_COMPLETED\ngreeted 1\n" + tt.exists + "\n"
			if string(out) != want {
				t.Errorf("found %q, expected %q", out, want)
			}
		})
	}
}

// clientInGo builds the client as a module of its own, as a user's is.
func clientInGo(t *testing.T) *exec.Cmd {
	t.Helper()
	folder, module := t.TempDir(), absolute(t, "../../proto")
	copyFile(t, "../../docs/examples/client/go/main.go", filepath.Join(folder, "main.go"))
	copyFile(t, "../../proto/go.sum", filepath.Join(folder, "go.sum"))
	requirements, err := os.ReadFile("../../proto/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	const path = "github.com/lockstep-cd/lockstep/proto"
	_, rest, _ := strings.Cut(string(requirements), "\n")
	mod := "module example.com/client\n" + rest + "\nrequire " + path + " v0.0.0\n\nreplace " + path + " => " + module + "\n"
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "client", ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off")
	must(t, build)
	return exec.CommandContext(t.Context(), filepath.Join(folder, "client"))
}

func clientInPython(t *testing.T) *exec.Cmd {
	t.Helper()
	python, generated := generatePython(t)
	command := exec.CommandContext(t.Context(), python, absolute(t, "../../docs/examples/client/python/client.py"))
	command.Env = append(os.Environ(), "PYTHONPATH="+generated)
	return command
}

// clientInTypeScript generates and builds the client in its folder, with what `npm ci` has installed there.
func clientInTypeScript(t *testing.T) *exec.Cmd {
	t.Helper()
	folder := absolute(t, "../../docs/examples/client/typescript")
	if _, err := os.Stat(filepath.Join(folder, "node_modules")); err != nil {
		missing(t, "run npm ci in docs/examples/client/typescript first, or make clients")
	}
	if _, err := exec.LookPath("protoc"); err != nil {
		missing(t, "found no protoc")
	}
	if err := os.MkdirAll(filepath.Join(folder, "generated"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"generate", "build"} {
		command := exec.CommandContext(t.Context(), "npm", "run", "--silent", script)
		command.Dir = folder
		must(t, command)
	}
	return exec.CommandContext(t.Context(), "node", filepath.Join(folder, "build", "client.js"))
}

// generatePython generates the client for a Python with grpcio (LOCKSTEP_TEST_PYTHON, python3 or Debian's), by its grpcio-tools or by
// protoc with grpc_python_plugin. It returns the interpreter and the folder of the client.
func generatePython(t *testing.T) (python, folder string) {
	t.Helper()
	has := func(modules string) bool {
		for _, python = range []string{cmp.Or(os.Getenv("LOCKSTEP_TEST_PYTHON"), "python3"), "/usr/bin/python3"} {
			if exec.CommandContext(t.Context(), python, "-c", "import "+modules).Run() == nil {
				return true
			}
		}
		return false
	}
	folder = t.TempDir()
	common := []string{"-I", "../../proto", "--python_out=" + folder, "../../proto/lockstep/autoflow/v1/autoflow.proto"}
	plugin, noPlugin := exec.LookPath("grpc_python_plugin")
	var generate *exec.Cmd
	switch {
	case has("grpc_tools, grpc"):
		generate = exec.CommandContext(
			t.Context(), python, append([]string{"-m", "grpc_tools.protoc", "--grpc_python_out=" + folder}, common...)...)
	case noPlugin == nil && has("grpc"):
		generate = exec.CommandContext(
			t.Context(), "protoc", append([]string{"--plugin=protoc-gen-grpc=" + plugin, "--grpc_out=" + folder}, common...)...)
	default:
		missing(t, "found no Python with grpcio and grpcio-tools, or protoc and grpc_python_plugin; LOCKSTEP_TEST_PYTHON names one")
	}
	must(t, generate)
	return python, folder
}

// missing leaves a test out, or fails it where everything is to be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("LOCKSTEP_CLIENTS") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func must(t *testing.T, command *exec.Cmd) {
	t.Helper()
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
