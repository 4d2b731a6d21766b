package sandbox

import (
	"fmt"
	"runtime/debug"
	"syscall"
)

// spare is how much of the operating system's memory limit is above the watchdog's: what the runtime keeps beside the
// heap, and what a program may allocate in one step before the watchdog has seen it.
const spare = 256 << 20

// confine sets the limits of the operating system, permanently. Memory is counted as private writable memory: the
// runtime reserves far more address space than it uses.
func confine(l Limits) error {
	debug.SetMemoryLimit(l.Memory)
	for _, limit := range []struct {
		resource int
		value    uint64
	}{
		{syscall.RLIMIT_DATA, uint64(2*l.Memory + spare)},
		{syscall.RLIMIT_CORE, 0},
		{syscall.RLIMIT_FSIZE, 0},
	} {
		if err := syscall.Setrlimit(limit.resource, &syscall.Rlimit{Cur: limit.value, Max: limit.value}); err != nil {
			return fmt.Errorf("limit resource %d to %d: %w", limit.resource, limit.value, err)
		}
	}
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness); err != nil {
		return fmt.Errorf("lower the priority: %w", err)
	}
	return nil
}
