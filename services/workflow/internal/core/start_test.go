package core

import (
	"encoding/json"
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

// A Function is given the numbers of its program: as a float a long whole number would be its neighbour.
func TestArgumentsKeepNumbers(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"0", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "18446744073709551615", "1" + strings.Repeat("0", 40) + "1", "1.5", "-0.25", "1e+300"} {
		args, err := arguments([]byte(`{"n": [` + number + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(args["n"]); err != nil || string(text) != "["+number+"]" {
			t.Errorf("%s became %s, error %v", number, text, err)
		}
	}
}
