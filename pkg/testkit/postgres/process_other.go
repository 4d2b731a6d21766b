//go:build unix && !linux

package postgres

import (
	"context"
	"syscall"
)

// dieWithParent does nothing here: only Linux signals a process when its parent dies.
func dieWithParent(*syscall.SysProcAttr, bool) {}

// endOrphans does nothing here: PostgreSQL's own check of the pid file decides.
func endOrphans(context.Context, string) error { return nil }
