package manifest

import "testing"

// TestPlain: tags that some reader takes for a number, a date or a boolean are written with quotes.
func TestPlain(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"1.25-alpine": true, "v2": true, "latest": true, "1.2.3": true,
		"1.10": false, "1_000": false, "2001-12-14": false, "y": false, "on": false, "1e3": false, "0o17": false, "22:22": false,
		"null": false, "a: b": false,
	} {
		if got := plain(s); got != want {
			t.Errorf("%q: found %t, expected %t", s, got, want)
		}
	}
}
