package driver

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
)

// printed runs one of our commands, and returns what it prints.
func printed(cmd func(commands) *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	shared := command.New("test", &out, io.Discard, func(string) string { return "" })
	shared.Output = "table"
	c := cmd(commands{shared})
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.Execute()
	return out.String(), err
}

// A new driver is valid and passes its own tests, also where its process is killed; so does a new check kind. A defect fails the tests.
func TestANewDriverPassesItsTests(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "mine")
	if out, err := printed(commands.driverNew, "mine", folder); err != nil || !strings.Contains(out, "mine@1") {
		t.Fatalf("found %v: %s", err, out)
	}
	out, err := printed(commands.driverTest, folder, "--seeds", "5")
	if err != nil || strings.Count(out, "\nok ") != 3 {
		t.Fatalf("found %v: %s", err, out)
	}
	if _, err := printed(commands.kindTest, folder); err == nil || !strings.Contains(err.Error(), "found mine@1") {
		t.Errorf("found %v; expected the driver refused as a check kind", err)
	}
	if _, err := printed(commands.driverNew, "mine", folder); err == nil {
		t.Error("the folder was written twice")
	}
	if _, err := printed(commands.driverNew, "Mine!", folder+"2"); err == nil || !strings.Contains(err.Error(), "expected lower-case letters") {
		t.Errorf("found %v", err)
	}
	server := filepath.Join(folder, "v1", "server.star")
	text, err := os.ReadFile(server)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(server, bytes.Replace(text, []byte(`"at": "degraded"`), []byte(`"at": "healthy"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := printed(commands.driverTest, folder, "--seeds", "1"); err == nil || !strings.Contains(out, "FAILED") {
		t.Errorf("found %v: %s; expected the case of an image that fails to fail", err, out)
	}
	if err := os.WriteFile(server, append(text, "\nfail(\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := printed(commands.driverTest, folder); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "server.star:") {
		t.Errorf("found %v; expected a module that does not parse to be refused, with its line", err)
	}
	if err := os.WriteFile(server, text, 0o600); err != nil {
		t.Fatal(err)
	}
	setup := filepath.Join(folder, "v1", "app_env_setup.star")
	good, err := os.ReadFile(setup)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setup, []byte("unknown()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const undefined = "v1/app_env_setup.star:1:1: undefined: unknown"
	if _, err := printed(commands.driverTest, folder); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), undefined) {
		t.Errorf("found %v; expected a program with an unknown name to be refused", err)
	}
	if err := os.Rename(filepath.Join(folder, "deploy.test.yaml"), filepath.Join(folder, "deploy.test.yml")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setup, good, 0o600); err != nil {
		t.Fatal(err)
	}
	const renamed = "expected the name deploy.test.yaml"
	if _, err := printed(commands.driverTest, folder); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), renamed) {
		t.Errorf("found %v; expected another suffix to be refused", err)
	}
	kind := filepath.Join(t.TempDir(), "kind")
	if _, err := printed(commands.kindNew, "ticket", kind); err != nil {
		t.Fatal(err)
	}
	if _, err := printed(commands.driverTest, kind); err == nil || !strings.Contains(err.Error(), "expected a driver") {
		t.Errorf("found %v; expected the check kind refused as a driver", err)
	}
	if out, err := printed(commands.kindTest, kind, "--seeds", "2"); err != nil {
		t.Errorf("found %v: %s", err, out)
	}
}

// Tables for the simulated cluster are validated without it, and without --cluster a note says that they were not played.
func TestCasesForTheClusterAreValidated(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "mine")
	if _, err := printed(commands.driverNew, "mine", folder); err != nil {
		t.Fatal(err)
	}
	if _, err := printed(commands.driverTest, folder, "--cluster"); err == nil || !strings.Contains(err.Error(), "found no *.cluster.yaml in") {
		t.Errorf("found %v; expected the missing table", err)
	}
	file := filepath.Join(folder, "a.cluster.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cases: [{name: one, services: [api], rollouts: [{images: {api: {tag: x}}, expect: {state: completed}}]}]")
	var notes bytes.Buffer
	shared := command.New("test", io.Discard, &notes, func(string) string { return "" })
	shared.Output = "json"
	cmd := commands{shared}.driverTest()
	cmd.SetArgs([]string{folder, "--seeds", "1"})
	want := "cases of *.cluster.yaml that were not played: 1; --cluster plays them against a simulated cluster\n"
	if err := cmd.Execute(); err != nil || notes.String() != want {
		t.Errorf("found %v, %q", err, notes.String())
	}
	write("cases: [{name: one, service: [api], rollouts: []}]")
	for _, flags := range [][]string{{folder}, {folder, "--cluster"}} {
		_, err := printed(commands.driverTest, flags...)
		if err == nil || !strings.Contains(err.Error(), `a.cluster.yaml: case "one": service: found`) {
			t.Errorf("%v: found %v; expected the field refused", flags, err)
		}
	}
	if err := os.Remove(filepath.Join(folder, "deploy.test.yaml")); err != nil {
		t.Fatal(err)
	}
	write("cases: [{name: one, services: [api], rollouts: [{images: {api: {tag: x}}, expect: {state: completed}}]}]")
	_, err := printed(commands.driverTest, folder)
	if err == nil || !strings.Contains(err.Error(), "--cluster plays those in *.cluster.yaml") {
		t.Errorf("found %v; expected the flag named", err)
	}
}
