// Package stamp detects that a file has been replaced without reading it, for certificates and tokens that change while a process
// runs.
//
// It does not watch files. Callers check when they need the file, so that no notification can be missed. A Kubernetes volume replaces
// files by switching a symbolic link, which is followed.
package stamp

import (
	"fmt"
	"os"
	"time"
)

// Stamp is one version of a file. The zero value is that of a file that is not there.
type Stamp struct {
	modified time.Time
	size     int64
}

// Of is the stamp of the file as it is now.
func Of(file string) (Stamp, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Stamp{}, fmt.Errorf("look at %s: %w", file, err)
	}
	return Stamp{modified: info.ModTime(), size: info.Size()}, nil
}
