package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// TestUpgradeFromThePreviousRelease migrates with this code and runs the previous release's services on it, with a rollout in flight, which
// are then replaced one by one by those of this code: no call of the API fails, and the rollout ends as if nothing had been. What the
// previous release is, deploy/previous-release says; it is built from the repository's history.
//
// LOCKSTEP_UPGRADE has to be set, since a build of everything takes minutes: `make upgrade` sets it. It is skipped in a clone without
// that commit, as a shallow one, and says so.
func TestUpgradeFromThePreviousRelease(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKSTEP_UPGRADE") == "" {
		t.Skip("LOCKSTEP_UPGRADE is not set; `make upgrade` sets it")
	}
	previous := buildPrevious(t)
	ctx, w := setup(t, oneStage()) // the tables are this code's from here on
	set, err := w.Push(ctx, "2.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"domain", "workflow", "registry"} {
		if err := w.stack.Disconnect(part); err != nil {
			t.Fatal(err)
		}
	}
	service := newBalancer(t)
	endpoints := w.stack.Endpoints()
	// At the address of the stack's own, which the image registry notifies of pushes.
	registry := w.replica(t, "registry", "previous", strings.TrimPrefix(endpoints.Registry, "http://"), nil)
	registry.forget(t)
	pairs := []*pair{w.pair(t, "a"), w.pair(t, "b")}
	registry.program = previous
	registry.start(ctx, t)
	for _, p := range pairs {
		p.workflow.program, p.domain.program = previous, previous
		p.start(ctx, t)
		service.add(p.domain.address)
	}
	w.API = client.New(client.Config{Endpoint: service.url + "/graphql", Token: endpoints.Token})

	w.replaceUnderARollout(ctx, t, service, pairs, set, func(p *pair) { p.workflow.program, p.domain.program = "", "" })
	registry.stop(t)
	registry.program = ""
	registry.start(ctx, t)
	if _, err := w.Push(ctx, "3.0.0", nil); err != nil { // the version set of a push that the new registry service was notified of
		t.Error(err)
	}
}

// forget takes out of a registry service's configuration what the previous release does not know: an operator adds it once the release is
// replaced.
func (r *replica) forget(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	delete(settings, "shared_tokens")
	registries, _ := settings["registries"].([]any)
	for _, one := range registries {
		if account, ok := one.(map[string]any); ok {
			delete(account, "organizations")
		}
	}
	if text, err = yaml.Marshal(settings); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// buildPrevious builds the previous release from the history, and answers the program.
func buildPrevious(t *testing.T) string {
	t.Helper()
	root := command(t, "git", "rev-parse", "--show-toplevel")
	text, err := os.ReadFile(filepath.Join(root, "deploy", "previous-release"))
	if err != nil {
		t.Fatal(err)
	}
	var commit string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			commit = strings.TrimSpace(line)
		}
	}
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("NOT TESTED: this clone does not have the previous release, commit %q of deploy/previous-release (%v); if it is shallow, `git fetch --unshallow` fetches it", commit, err)
	}
	source, archive, program := t.TempDir(), filepath.Join(t.TempDir(), "previous.tar"), filepath.Join(t.TempDir(), "lockstep")
	command(t, "git", "-C", root, "archive", "--output", archive, commit)
	command(t, "tar", "-x", "-C", source, "-f", archive)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./tools/lockstep")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", commit, err, out)
	}
	return program
}
