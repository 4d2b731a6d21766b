package probe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the kernel's USER_HZ, which is 100 on every Linux there is.
const ticksPerSecond = 100

// ProcessorTime is what a process has used, with its children that have ended. The error says what /proc did not have.
func ProcessorTime(pid int) (time.Duration, error) {
	own, collected, err := times(pid)
	return own + collected, err
}

// times are what a process has used itself, and what those of its children had that have ended.
func times(pid int) (own, collected time.Duration, err error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, 0, err
	}
	var ticks [4]int64 // utime, stime, cutime, cstime
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	const tick = time.Second / ticksPerSecond
	return time.Duration(ticks[0]+ticks[1]) * tick, time.Duration(ticks[2]+ticks[3]) * tick, nil
}

// stat are the fields of /proc/PID/stat after the name, which may hold anything.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields, expected at least 15", pid, len(fields))
	}
	return fields, nil
}

// childrenOf are the processes that a process has started and that still run.
func childrenOf(parent int) (pids []int, err error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if fields, err := stat(pid); err == nil && fields[1] == strconv.Itoa(parent) { // else not its own, or gone meanwhile
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// FamilyTime is the time of a process and of its children: of PostgreSQL, by its first process.
func FamilyTime(parent int) (time.Duration, error) {
	family, err := FamilyParts(parent)
	return family.Total(), err
}
