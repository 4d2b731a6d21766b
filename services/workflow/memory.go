package workflow

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/lockstep-cd/lockstep/pkg/config"
)

// MemoryBase is what the service takes beside what its configuration bounds, in bytes: the runtime, connections, requests and runs under
// way.
const MemoryBase = 192 << 20

// Memory is what a configuration can take at most, in bytes. A container's limit is to be at least Total.
type Memory struct {
	// Base is MemoryBase, Cache cache_bytes, Fetches git_limits.memory_bytes.
	Base, Cache, Fetches int64
	// Programs is sandbox_total_memory: child processes, which have limits of their own and no share in the service's GOMEMLIMIT.
	Programs int64
}

// Service is the part of the service's own process: a GOMEMLIMIT is to be at least that.
func (m Memory) Service() int64 { return m.Base + m.Cache + m.Fetches }

// Total is all of it.
func (m Memory) Total() int64 { return m.Service() + m.Programs }

// Memory is the arithmetic of the configuration.
func (c Config) Memory() Memory {
	c = config.WithDefaults(c)
	m := Memory{Base: MemoryBase, Cache: max(0, c.CacheBytes), Fetches: c.GitLimits.MemoryBytes}
	if !c.TrustPrograms {
		m.Programs = int64(c.SandboxTotalMemory) << 20
	}
	return m
}

// memoryFile is where the kernel says how much the container may take.
const memoryFile = "/sys/fs/cgroup/memory.max"

// fitMemory reports what the configuration can take, warns where the container may take less, and leaves the children's part of a limit to
// them.
func fitMemory(ctx context.Context, c Config, log *slog.Logger) {
	m := c.Memory()
	text, _ := os.ReadFile(memoryFile) // there is none outside of containers
	limit := containerLimit(text)
	log.InfoContext(ctx, "memory", "most", m.Total(), "service", m.Service(), "programs", m.Programs, "limit", limit)
	if limit == 0 {
		return
	}
	if limit < m.Total() {
		log.WarnContext(ctx, "the container may take less memory than the configuration can: raise its limit, or lower cache_bytes, sandbox_total_memory or git_limits.memory_bytes",
			"limit", limit, "expected", m.Total())
	}
	if own := goLimit(limit, m); own < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(own)
	}
}

// containerLimit reads memory.max; 0: there is no limit.
func containerLimit(text []byte) int64 {
	limit, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0 // "max"
	}
	return limit
}

// goLimit is where the service begins to collect garbage for its life: nine tenths of what the children leave of the container's limit, and
// never so little that it does nothing else.
func goLimit(limit int64, m Memory) int64 { return max((limit-m.Programs)*9/10, m.Base) }
