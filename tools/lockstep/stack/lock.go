package stack

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// ErrInUse is returned for a data folder that another stack runs on.
var ErrInUse = errors.New("in use")

// lock takes a file for this process; the kernel gives it back when the process ends, however it ends.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := flock(f); err != nil {
		holder, _ := os.ReadFile(path)
		_ = f.Close()
		return nil, fault.New(fault.Refused, "%s is %w by process %s", path, ErrInUse, strings.TrimSpace(string(holder)))
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}
