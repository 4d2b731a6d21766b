package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

// commit pushes a change of the manifests, as a member of the team would.
func (r *run) commit(ctx context.Context, edits []Edit) error {
	dir, err := os.MkdirTemp("", "lockstep-e2e-clone-")
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := git(ctx, "", "clone", "--quiet", r.Stack.Endpoints().Git+"/"+r.scenario.Name+".git", dir); err != nil {
		return err
	}
	for _, e := range edits {
		file := filepath.Join(dir, filepath.FromSlash(r.scenario.full(e.File))+".yaml")
		before, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		after := strings.ReplaceAll(string(before), r.expand(ctx, e.Replace), r.expand(ctx, e.With))
		if after == string(before) {
			return fmt.Errorf("commit: found %q nowhere in %s", e.Replace, e.File)
		}
		if err := os.WriteFile(file, []byte(after), 0o600); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	for _, args := range [][]string{{"commit", "--quiet", "--all", "-m", "a change of the team"}, {"push", "--quiet"}} {
		if err := git(ctx, dir, args...); err != nil {
			return err
		}
	}
	return nil
}

// commits compares the number of Lockstep's commits to the repository; the first commit contains the manifests.
func (r *run) commits(ctx context.Context, want int) error {
	all, err := gitserver.Log(ctx, r.Stack.GitDir(), r.scenario.Name)
	if err == nil && len(all)-1 != want {
		err = fmt.Errorf("git: found %d commits after the first, expected %d", len(all)-1, want)
	}
	return err
}

// git runs git without the user's configuration.
func git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // arguments of our own
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=team", "GIT_AUTHOR_EMAIL=team@example.com", "GIT_COMMITTER_NAME=team", "GIT_COMMITTER_EMAIL=team@example.com")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, output)
	}
	return nil
}
