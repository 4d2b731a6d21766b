package cluster

import "syscall"

// attributes have the kernel end a program with us, and keep a Ctrl-C of ours from it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
