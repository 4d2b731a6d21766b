package pgtest

import (
	"bufio"
	"fmt"
	"os"
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
	meminfo, err := os.Open("/proc/meminfo")
	if err != nil {
		return ""
	}
	defer func() { _ = meminfo.Close() }()
	for lines := bufio.NewScanner(meminfo); lines.Scan(); {
		var available int64
		if _, err := fmt.Sscanf(strings.TrimSpace(lines.Text()), "MemAvailable: %d kB", &available); err == nil {
			if available < enoughMemory {
				return ""
			}
			return sharedMemory
		}
	}
	return ""
}
