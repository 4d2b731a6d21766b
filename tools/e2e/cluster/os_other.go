//go:build unix && !linux

package cluster

import "syscall"

// attributes: without Linux's parent death signal, a test that is killed leaves programs behind.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
