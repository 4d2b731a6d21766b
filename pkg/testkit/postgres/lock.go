//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// lockDir takes the folder for this process until unlock, or until the process ends.
func lockDir(path string) (unlock func(), err error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another process uses the folder: process %s", strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("lock the folder: %w", err)
	}
	_ = f.Truncate(0)
	_, _ = fmt.Fprintln(f, os.Getpid()) // only for the message above
	return func() { _ = f.Close() }, nil
}

// waitLock takes a lock that others hold for a few seconds at most.
func waitLock(path string) (unlock func(), err error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return f, nil
}
