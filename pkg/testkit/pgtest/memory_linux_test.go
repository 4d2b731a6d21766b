package pgtest

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryThatIsLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := withinGroup(dir); got != math.MaxInt64 {
		t.Errorf("without a group: found %d", got)
	}
	for _, c := range []struct {
		limit, used string
		want        int64
	}{{"max\n", "1024\n", math.MaxInt64}, {"4096\n", "1024\n", 3}, {"4096\n", "", 0}} {
		for name, content := range map[string]string{"memory.max": c.limit, "memory.current": c.used} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := withinGroup(dir); got != c.want {
			t.Errorf("%q of %q: found %d; want %d", c.used, c.limit, got, c.want)
		}
	}
	meminfo := filepath.Join(dir, "meminfo")
	if err := os.WriteFile(meminfo, []byte("MemTotal:  100 kB\nMemAvailable:   42 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := available(meminfo); got != 42 {
		t.Errorf("found %d kB; want 42", got)
	}
	if got := available(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("found %d kB; want 0", got)
	}
}
