package run

import (
	"fmt"
	"syscall"
)

// HideMemory hides the memory of this process, and with it the environment, from other processes of the same user, and disables core dumps:
// a service has credentials there.
func HideMemory() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		return fmt.Errorf("close the memory of this process to others: %w", errno)
	}
	return nil
}
