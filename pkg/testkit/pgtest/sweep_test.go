package pgtest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestWhatKilledProcessesHaveLeftIsRemoved(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{"server-left": 2 * time.Hour, "server-used": 2 * time.Hour, "server-new": 0, "template-15": 2 * time.Hour} {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	used, err := os.OpenFile(filepath.Join(base, "server-used", "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = used.Close() }()
	if err := syscall.Flock(int(used.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	sweep(base, now)
	for name, want := range map[string]bool{"server-left": false, "server-used": true, "server-new": true, "template-15": true} {
		if _, err := os.Stat(filepath.Join(base, name)); (err == nil) != want {
			t.Errorf("%s: found %v; want it kept: %t", name, err, want)
		}
	}
}
