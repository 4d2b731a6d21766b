package core

import (
	"strings"
	"testing"
)

// What is wrong with inputs is said with the byte at which they stop being JSON.
func TestInputsThatAreNoJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": 1`:    "byte 7: unexpected EOF",
		`{"a": 1,}`:  "byte 9: invalid character '}'",
		`nonsense`:   "byte 2: invalid character 'o'",
		`{"a":1} {}`: "something follows the value at byte 8",
	} {
		if _, err := Canonical([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: found %v, expected %q", text, err, want)
		}
	}
}
