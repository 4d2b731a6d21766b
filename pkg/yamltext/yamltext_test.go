package yamltext_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/yamltext"
)

func TestAmbiguous(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "~", "=", "<<", "null", "NULL", "True", "yes", "No", "ON", "off", "y", "N", ":symbol",
		"1", "-1", "+1", "0", "007", "0o17", "0x1F", "-0b1010", "1_000", "1,000", "685_230.15", "1e3", "1E-3", "1.5e+3", ".5", "5.", "-.5",
		".inf", "-.INF", ".NaN", "+.inf",
		"22:22", "1:30:00", "190:20:30", "190:20:30.15", "2001-12-14", "2001-1-4", "2001-12-14t21:59:43.10-05:00",
		"2001-12-14 21:59:43.10 -5", "-2001-12-14",
	} {
		if !yamltext.Ambiguous(s) {
			t.Errorf("%q: some reader takes it for something other than a string", s)
		}
	}
	for _, s := range []string{
		"a", "1.2.3", "v1.2", "1.25-alpine", "10.0.0.1", "1-2", "12:ab", "nginx:1.25", "sha256:9f86d081884c7d659a2feaa0c55ad015",
		"9f86d081884c7d65", "1e3a", "0xg",
		"yes please", "nope", "nano", "infra", "information", "2001-12", "20011214", "e3", "+", "-", ".", "..", "a=b", "a<b",
	} {
		want := s == "20011214"
		if got := yamltext.Ambiguous(s); got != want {
			t.Errorf("%q: found %t, expected %t", s, got, want)
		}
	}
}
