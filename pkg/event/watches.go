package event

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// WatchDigest identifies a set of watches by their ids, in whatever order.
func WatchDigest(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(ids)), "\n")))
	return hex.EncodeToString(sum[:8])
}
