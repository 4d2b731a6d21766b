package certs

import (
	"fmt"
	"os"
	"time"
)

// Stamp identifies one version of a file. The zero value stands for a missing file.
type Stamp struct {
	modified time.Time
	size     int64
}

// StampOf returns the stamp of the file as it is now.
func StampOf(file string) (Stamp, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Stamp{}, fmt.Errorf("look at %s: %w", file, err)
	}
	return Stamp{modified: info.ModTime(), size: info.Size()}, nil
}
