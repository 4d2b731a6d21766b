//go:build unix && !linux

package stack

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

func executable() (string, error) { return os.Executable() }

// attributes: without Linux's parent death signal, a supervisor that is killed leaves its children behind.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// claimPort keeps other stacks from choosing the port.
func claimPort(port int) (io.Closer, error) {
	return lock(filepath.Join(os.TempDir(), "lockstep-port-"+strconv.Itoa(port)))
}
