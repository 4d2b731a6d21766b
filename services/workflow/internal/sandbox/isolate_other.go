//go:build !linux

package sandbox

import (
	"os"
	"runtime"
	"syscall"
)

// signalStop and signalContinue would pause and resume a child. On systems other than Linux nothing is paused, and the operating system
// shares the processors.
const (
	signalStop     = syscall.Signal(0)
	signalContinue = syscall.Signal(0)
)

// attributes are those of a child when it is started.
func attributes() *syscall.SysProcAttr { return nil }

// background does nothing here.
func background(int, bool) error { return nil }

// isolate reports that there is nothing to confine a child with.
func isolate() Isolation {
	missing := "there is none on " + runtime.GOOS
	return Isolation{Landlock: missing, Seccomp: missing, Undumpable: missing, NoNewPrivileges: missing}
}

// residentBytes is not known here.
func residentBytes(int) int64 { return 0 }

var _ os.Signal = signalStop
