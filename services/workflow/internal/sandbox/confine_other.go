//go:build !linux

package sandbox

import "runtime/debug"

// confine sets what there is of limits: elsewhere than on Linux the watchdog is alone.
func confine(l Limits) error {
	debug.SetMemoryLimit(l.Memory)
	return nil
}
