//go:build unix && !linux

package port

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// claim keeps others from choosing the port: a file's lock, which the kernel drops with the process.
func claim(port int) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "lockstep-port-"+strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
