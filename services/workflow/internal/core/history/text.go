package history

import (
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/secret/redact"
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
const Redacted = redact.Mark

// Redact takes out of a text what looks like a secret. Those of references never come this far (D27); this is for what a program was given
// in its inputs, or has read out of a repository. It finds the forms that secrets commonly have, not every secret.
func Redact(text string) (string, bool) { return redact.Text(text) }
