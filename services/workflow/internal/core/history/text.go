package history

import (
	"regexp"
	"strings"
)

// MaxError bounds the text of a failure in bytes: it goes into the row, the history and an event.
const MaxError = 4 << 10

// Storable is text that PostgreSQL takes: a program may fail with anything, and a failure that cannot be kept would be
// tried again for ever.
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// Truncate may cut a character in two. storable, which sees the text afterwards, mends that.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + Cut
}

// Cut marks where text was cut, here and by what records it.
const Cut = "… cut"

// Redacted stands for what was taken out of a text.
const Redacted = "[redacted]"

// secrets are the forms that secrets have when a program prints one by mistake. Those of references never come this far
// (D27); this is for what a program was given in its inputs, or has read out of a repository. Groups stay.
var secrets = regexp.MustCompile(strings.Join([]string{
	`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)`,
	`(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s:@]*:[^/\s@]+(@)`,
	`(\b(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`,
	`\b(?:gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)`,
	`((?i:password|passwd|secret|token|api[_-]?key|private[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',;&]+`,
}, "|"))

// Redact takes out of a text what looks like a secret. It finds the forms that secrets commonly have, not every secret.
func Redact(text string) (string, bool) {
	redacted := secrets.ReplaceAllString(text, "${1}${3}${4}"+Redacted+"${2}")
	return redacted, redacted != text
}
