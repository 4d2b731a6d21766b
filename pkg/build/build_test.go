package build_test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/build"
)

func TestReadWithoutLinker(t *testing.T) {
	t.Parallel()
	got := build.Read()
	if got.Version != "dev" || got.Commit == "" || got.Go != runtime.Version() {
		t.Errorf("got %+v", got)
	}
}

// TestTheLinkerSets builds a program as the Makefile does.
func TestTheLinkerSets(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "version")
	const to = "-X github.com/lockstep-cd/lockstep/pkg/build."
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", to+"version=v1.2.3 "+to+"commit=abc", "-o", binary,
		"./testdata/version").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), binary).CombinedOutput()
	if want := "v1.2.3 (commit abc, " + runtime.Version() + ")"; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("got %s, %v; want %s", out, err, want)
	}
}
