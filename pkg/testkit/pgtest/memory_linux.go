package pgtest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	sharedMemory = "/dev/shm"
	// tmpfs is the type of a file system in memory (statfs(2)).
	tmpfs = 0x01021994
	// A server's databases take up to 20 MB each, and are dropped with their tests; enoughRoom is for all of a package's, in bytes.
	enoughRoom = 1 << 30
	// enoughMemory is what must be left for everything else, in kB, as /proc/meminfo has it.
	enoughMemory = 4 << 20
)

// inMemory is a folder in memory with room for a server, or "" where there is none, or too little memory, or where a TMPDIR says which
// folder tests have.
func inMemory() string {
	if os.Getenv("TMPDIR") != "" {
		return ""
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(sharedMemory, &stat); err != nil || int64(stat.Type) != tmpfs || stat.Bavail*uint64(stat.Bsize) < enoughRoom { //nolint:unconvert // its types differ between architectures
		return ""
	}
	if available("/proc/meminfo") < enoughMemory || withinGroup("/sys/fs/cgroup") < enoughMemory {
		return ""
	}
	return sharedMemory
}

// available is how much memory the machine can give, in kB, as the kernel estimates it; 0 where that is not known.
func available(meminfo string) (kB int64) {
	content, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kB); err == nil {
			return kB
		}
	}
	return 0
}

// withinGroup is how much memory the control group, such as a container's, can still use, in kB: what is in memory counts as its own.
func withinGroup(dir string) (kB int64) {
	read := func(name string) (bytes int64, err error) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			bytes, err = strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		}
		return bytes, err
	}
	limit, err := read("memory.max")
	if err != nil {
		return math.MaxInt64 // there is no group, or it has no limit
	}
	used, err := read("memory.current")
	if err != nil {
		return 0
	}
	return (limit - used) >> 10
}
