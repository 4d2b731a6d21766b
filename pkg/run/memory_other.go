//go:build !linux

package run

// HideMemory is a no-op here: the platform has no such switch.
func HideMemory() error { return nil }
