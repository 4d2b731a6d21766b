package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "go.work", "go 1.26.0\n\nuse (\n\t./a\n\t./b\n\t./tools/c\n)\n")
	write(t, root, "a/go.mod", "module example.com/a\n\ngo 1.26.0\n")
	write(t, root, "b/go.mod", "module example.com/b\n\ngo 1.25.0\n\nrequire example.com/a v0.0.0\n")
	// c needs a through b, replaces itself by mistake, and has one replacement that is not ours.
	write(t, root, "tools/c/go.mod", "module example.com/c\n\ngo 1.26.0\n\nrequire example.com/b v0.0.0\n\n"+
		"replace example.com/c => ../c\n\nreplace example.com/other => ../other\n")

	want := []string{filepath.Join(root, "b/go.mod"), filepath.Join(root, "tools/c/go.mod")}
	for _, check := range []bool{true, false} {
		got, err := run(root, check)
		if err != nil {
			t.Fatalf("run, check %t: %v", check, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("run, check %t (-want +got):\n%s", check, diff)
		}
	}
	if got, err := run(root, true); err != nil || len(got) > 0 {
		t.Errorf("check after writing: got %q, %v; want nothing to change", got, err)
	}

	b, c := read(t, root, "b/go.mod"), read(t, root, "tools/c/go.mod")
	if !strings.Contains(b, "go 1.26.0") || !strings.Contains(b, "replace example.com/a => ../a") {
		t.Errorf("b/go.mod: got\n%s", b)
	}
	for _, line := range []string{"example.com/a => ../../a", "example.com/b => ../../b", "example.com/other => ../other"} {
		if !strings.Contains(c, line) {
			t.Errorf("tools/c/go.mod: want a line %q in\n%s", line, c)
		}
	}
	if strings.Contains(c, "example.com/c => ../c") {
		t.Errorf("tools/c/go.mod: it still replaces itself:\n%s", c)
	}
}

func TestRunWithoutWorkspace(t *testing.T) {
	t.Parallel()
	if _, err := run(t.TempDir(), true); err == nil {
		t.Error("got no error, want one that names go.work")
	}
}

func write(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
