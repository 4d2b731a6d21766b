package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/testkit/pgtest"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// casesFolder is a folder with the driver kubernetes@1 under another name, and tables of cases for the simulated cluster.
func casesFolder(t *testing.T, tables ...string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "driver")
	if err := os.CopyFS(folder, os.DirFS("../../../pkg/driver/bundles/kubernetes")); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	manifest = bytes.Replace(manifest, []byte(`"ref": "kubernetes"`), []byte(`"ref": "tried"`), 1)
	if err := os.WriteFile(filepath.Join(folder, "manifest.json"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range tables {
		text, err := os.ReadFile(filepath.Join("../trial/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// driverTest is the command on a folder, and where its temporary folders are.
func driverTest(t *testing.T, folder string) (cmd *exec.Cmd, temporary string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	cmd, temporary = exec.CommandContext(ctx, self, "driver", "test", folder, "--cluster", "-o", "json"), t.TempDir()
	cmd.Env = append(os.Environ(), "LOCKSTEP_TEST_AS_COMMAND=1", "LOCKSTEP_DATABASE_URL="+pgtest.URL(t), "TMPDIR="+temporary)
	cmd.WaitDelay = time.Second
	return cmd, temporary
}

func expectNothingLeft(t *testing.T, temporary string) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(temporary, "lockstep-driver-test-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: found %v, %v; want nothing", left, err)
	}
}

// D53: `driver test --cluster` plays tables of cases against the simulated cluster, and reports which have failed, and why.
func TestADriversCasesArePlayedAgainstTheCluster(t *testing.T) {
	t.Parallel()
	cmd, temporary := driverTest(t, casesFolder(t, "kubernetes.cluster.yaml", "argo-rollouts.cluster.yaml", "failing.cluster.yaml"))
	var output, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &complaints
	err := cmd.Run()
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.ExitCode() != 4 || !strings.Contains(complaints.String(), "4 of 8 cases failed") {
		t.Fatalf("found %v, %s\n%s; want the exit code 4 for 4 cases of 8", err, complaints.String(), output.String())
	}
	expectNothingLeft(t, temporary)
	var all []struct {
		File, Case string
		Cluster    bool
		Passed     bool
		Failures   []string
		Runs       int
	}
	if err := json.Unmarshal(output.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"expects another end": {
			"rollout 1: state: found failed, expected completed", "deployments.api: found degraded, expected healthy", "Progress deadline exceeded",
		},
		"expects other objects": {
			"Deployment api.spec.replicas: found 1, expected 7", "Deployment api: found it, expected it to be absent", "Service api: found none",
		},
		"has no manifest":      {"before the first rollout: ", `path "api.yaml" does not exist`},
		"does not end in time": {"the case did not end within 5s"},
	}
	for _, one := range all {
		failures := strings.Join(one.Failures, "\n")
		failing := strings.HasSuffix(one.File, "failing.cluster.yaml")
		if one.Passed == failing || !one.Cluster || failing != (want[one.Case] != nil) {
			t.Errorf("case %q of %s: passed is %t: %s", one.Case, one.File, one.Passed, failures)
		}
		for _, text := range want[one.Case] {
			if !strings.Contains(failures, text) {
				t.Errorf("case %q: found %s; want %q in it", one.Case, failures, text)
			}
		}
	}
}

// Ctrl-C ends the cases, and leaves nothing behind.
func TestInterruptedCasesOfADriver(t *testing.T) {
	t.Parallel()
	cmd, temporary := driverTest(t, casesFolder(t, "kubernetes.cluster.yaml", "argo-rollouts.cluster.yaml"))
	complaints, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd.Stdout = &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, seen := bufio.NewScanner(complaints), ""
	for lines.Scan() {
		seen += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "played 1 of 4") {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 130 || !strings.Contains(seen, "played 1 of 4") {
		t.Errorf("found %v: %s; want the exit code of an interruption, %d", err, seen, 128+int(syscall.SIGINT))
	}
	const first = "a canary passes its gate after an approval"
	if !strings.Contains(output.String(), `"case": "`+first+`"`) || !strings.Contains(seen, first+": passed\n") {
		t.Errorf("found %s\n%s; want what was played until then", seen, output.String())
	}
	expectNothingLeft(t, temporary)
}

// A temporary stack that does not start leaves no schemas on a server that it shares.
func TestATemporaryStackThatDoesNotStartLeavesNoSchemas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	_, err := stack.Start(ctx, stack.Config{
		Dir: dir, DatabaseURL: pgtest.URL(t), Temporary: true, Set: []string{"relay.unknown=1"}, // the relay starts after the services
	})
	if err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Fatalf("found %v; want the relay refused", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config", "domain.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, schema, found := strings.Cut(string(text), "\nschema: ")
	schema, _, _ = strings.Cut(schema, "\n")
	_, id, named := strings.Cut(schema, "domain_")
	if !found || !named {
		t.Fatalf("found %q in the configuration of the domain service; want the name of its schema", schema)
	}
	conn, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	var left []string
	if err := conn.QueryRow(ctx, "SELECT array_agg(nspname::text) FROM pg_namespace WHERE nspname LIKE '%\\_' || $1", id).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("found the schemas %v; want none", left)
	}
}
