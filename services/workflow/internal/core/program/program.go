package program

import (
	"crypto/sha256"
	"encoding/hex"
)

// Program is source code: the main file and what it may load.
type Program struct {
	Source []byte
	// Modules are the files that load() finds, by name.
	Modules map[string][]byte
}

// Hex is a digest as people see it.
func Hex(sum [32]byte) string { return hex.EncodeToString(sum[:]) }

// Digest identifies source code.
func Digest(source []byte) [32]byte { return sha256.Sum256(source) }
