package cluster

import "syscall"

// attributes makes the kernel end a program with its parent, and protects it from Ctrl-C.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
