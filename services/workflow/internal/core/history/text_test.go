package history

import (
	"testing"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing to see: tokens are cheap":                                  "nothing to see: tokens are cheap",
		"https://me:hunter2@git.example.com/x.git":                          "https://[redacted]@git.example.com/x.git",
		"https://git.example.com/a:b":                                       "https://git.example.com/a:b",
		"Authorization: Bearer abc.def-123456":                              "Authorization: Bearer [redacted]",
		`{"password": "hunter2", "user": "me"}`:                             `{"password": "[redacted]", "user": "me"}`,
		"GIT_TOKEN=hunter2 make":                                            "GIT_TOKEN=[redacted] make",
		"glpat-abcdefghij0123456789":                                        "[redacted]",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\nand more":                    "[redacted]",
		"-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\nrest": "[redacted]\nrest",
	} {
		got, redacted := Redact(text)
		if got != want || redacted != (text != want) {
			t.Errorf("%q: found %q (%t), expected %q", text, got, redacted, want)
		}
	}
}
