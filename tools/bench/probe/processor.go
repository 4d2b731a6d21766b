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
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
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

// FamilyTime is the time of a process and of its children: of PostgreSQL, by its first process.
func FamilyTime(parent int) (time.Duration, error) {
	total, err := ProcessorTime(parent)
	if err != nil {
		return 0, err
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fields, err := stat(pid)
		if err != nil || fields[1] != strconv.Itoa(parent) {
			continue // not ours, or gone meanwhile
		}
		if spent, err := ProcessorTime(pid); err == nil {
			total += spent
		}
	}
	return total, nil
}
