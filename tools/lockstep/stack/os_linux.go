package stack

import (
	"os"
	"syscall"
)

// executable is this program, even after a new build has replaced the file it was started from.
func executable() (string, error) { return "/proc/self/exe", nil }

// attributes put a child in a process group of its own, so that a Ctrl-C reaches the supervisor alone, which stops its children in
// order; and have the kernel end it with the supervisor.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signalGroup sends a signal to a child and what it has started.
func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
