package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// DefaultFolder is the folder of a stack that is not given another one.
func DefaultFolder() string { return filepath.Join(os.TempDir(), "lockstep") }

// CheckDefaultFolder refuses a default folder that belongs to another account: everybody may write where it is, and what it says of
// endpoints and tokens would be theirs.
func CheckDefaultFolder() error {
	folder := DefaultFolder()
	info, err := os.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return checkFolder(folder, info, os.Geteuid())
}

func checkFolder(folder string, info fs.FileInfo, account int) error {
	owner, known := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || known && int(owner.Uid) != account {
		return fault.New(fault.Refused, "%s is not a folder of your account; name another one with --data DIR or LOCKSTEP_DATA", folder)
	}
	return nil
}

// TemporaryFolder makes a folder for a stack that nobody needs afterwards, and returns how to remove it.
func TemporaryFolder(pattern string) (folder string, remove func() error, err error) {
	if folder, err = os.MkdirTemp("", pattern); err != nil {
		return "", nil, fmt.Errorf("temporary folder: %w", err)
	}
	// The account that runs PostgreSQL in place of root passes through it.
	//nolint:gosec // what is in it is closed to others
	if err := os.Chmod(folder, 0o711); err != nil {
		return "", nil, fmt.Errorf("temporary folder: %w", err)
	}
	return folder, func() error { return os.RemoveAll(folder) }, nil
}
