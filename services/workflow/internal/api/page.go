package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
)

// pageSize is the size that a request means.
func pageSize(asked int32, usual, most int) (int, error) {
	switch {
	case asked < 0:
		return 0, invalid("page_size", "found %d, expected 0 to %d", asked, most)
	case asked == 0:
		return usual, nil
	default:
		return min(int(asked), most), nil
	}
}

// A page token is the position of the last thing shown and a fingerprint of the request it belongs to, so that one page's
// token cannot be used to continue another list. It holds nothing that its reader may not know, and grants nothing: what
// is asked with it is checked like any other request.
const tokenBytes = 16

// pageToken is the token of the page after position.
func pageToken(position int64, conditions ...any) string {
	var b [tokenBytes]byte
	binary.BigEndian.PutUint64(b[:8], uint64(position))
	copy(b[8:], fingerprint(position, conditions))
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// position is where a page begins; 0 is the beginning.
func position(token string, conditions ...any) (int64, error) {
	if token == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && len(b) == tokenBytes {
		at := int64(binary.BigEndian.Uint64(b[:8]))
		if at > 0 && string(fingerprint(at, conditions)) == string(b[8:]) {
			return at, nil
		}
	}
	return 0, invalid("page_token", "found %.40q, expected what the page before of the same request carried", token)
}

func fingerprint(position int64, conditions []any) []byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %#v", position, conditions) // maps are printed in the order of their keys
	return h.Sum(nil)[:tokenBytes-8]
}
