//go:build !linux

package pgtest

// inMemory is for Linux, which has a folder in memory.
func inMemory() string { return "" }
