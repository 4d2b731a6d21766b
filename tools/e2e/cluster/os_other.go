//go:build unix && !linux

package cluster

import "syscall"

// attributes cannot use Linux's parent death signal here: a killed test leaves programs behind.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
