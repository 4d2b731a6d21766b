// Package id generates and parses identifiers: unique ones for events and instances, and the typed ones that the public API
// uses in place of bare numbers.
//
// It does not number rows: PostgreSQL does that.
package id

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// New returns a version 7 UUID (RFC 9562): sortable by the time at, unique without coordination.
func New(at time.Time) string {
	var u [16]byte
	_, _ = rand.Read(u[6:]) // never fails since Go 1.24
	ms := uint64(at.UnixMilli())
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// Format returns the public identifier of row n of a kind: Format("rollout", 12) is "rollout_12".
func Format(kind string, n int64) string { return kind + "_" + strconv.FormatInt(n, 10) }

// Parse reads a public identifier of the expected kind. It also accepts the bare number, which people type. Any other input is an error
// that names what was found and what was expected.
func Parse(kind, s string) (int64, error) {
	digits, prefixed := strings.CutPrefix(s, kind+"_")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || (!prefixed && digits != s) || digits[0] == '+' {
		return 0, fmt.Errorf("identifier %q: expected %q followed by a number above zero", s, kind+"_")
	}
	return n, nil
}

// Split returns the kind and the number of a public identifier.
func Split(s string) (kind string, n int64, err error) {
	i := strings.LastIndexByte(s, '_')
	if i <= 0 {
		return "", 0, fmt.Errorf("identifier %q: expected <kind>_<number>", s)
	}
	n, err = Parse(s[:i], s)
	return s[:i], n, err
}
