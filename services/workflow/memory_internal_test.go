package workflow

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
)

// TestMemoryAddsUp is the arithmetic that the chart's figures are checked against.
func TestMemoryAddsUp(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		config         Config
		service, total int64
	}{
		"defaults": {Config{}, (192 + 256 + 256) * mib, (192 + 256 + 256 + 512) * mib},
		"no cache": {Config{CacheBytes: -1}, (192 + 256) * mib, (192 + 256 + 512) * mib},
		"everything smaller": {
			Config{CacheBytes: 64 * mib, SandboxTotalMemory: 300, GitLimits: gitfetch.Limits{MemoryBytes: 128 * mib}},
			384 * mib, 684 * mib,
		},
		"programs in process": {Config{TrustPrograms: true}, 704 * mib, 704 * mib},
	} {
		if m := tt.config.Memory(); m.Service() != tt.service || m.Total() != tt.total {
			t.Errorf("%s: found %d for the service and %d in all, expected %d and %d", name, m.Service(), m.Total(), tt.service, tt.total)
		}
	}
	if limit := containerLimit([]byte("1073741824\n")); limit != 1<<30 {
		t.Errorf("found a limit of %d", limit)
	}
	if limit := containerLimit([]byte("max\n")); limit != 0 {
		t.Errorf("found a limit of %d where there is none", limit)
	}
	m := Config{}.Memory()
	for limit, want := range map[int64]int64{2 << 30: (2048 - 512) * mib * 9 / 10, 256 * mib: m.Base} {
		if got := goLimit(limit, m); got != want {
			t.Errorf("with a container of %d the service's limit is %d, expected %d", limit, got, want)
		}
	}
}
