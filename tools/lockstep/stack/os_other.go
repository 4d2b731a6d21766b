//go:build unix && !linux

package stack

import (
	"os"
	"syscall"
)

func executable() (string, error) { return os.Executable() }

// attributes: without Linux's parent death signal, a supervisor that is killed leaves its children behind.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
