package engine

import (
	"crypto/rand"
	"encoding/binary"
)

// drawn is a number from 0 up to but not including 1, of 53 random bits: every float64 of that spacing is as likely as
// any other.
func drawn() float64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}
