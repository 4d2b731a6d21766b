package stack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

func TestTheDefaultFolderIsOurs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	link, file := filepath.Join(folder, "link"), filepath.Join(folder, "file")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		account    int
		refused    bool
	}{
		{"our own", folder, os.Geteuid(), false},
		{"another account's", folder, os.Geteuid() + 1, true},
		{"a link", link, os.Geteuid(), true},
		{"a file", file, os.Geteuid(), true},
	} {
		info, err := os.Lstat(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkFolder(c.path, info, c.account); fault.Is(err, fault.Refused) != c.refused {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}
