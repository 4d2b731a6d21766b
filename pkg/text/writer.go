package text

import (
	"io"
	"sync"
	"unicode/utf8"
)

// NewWriter returns a writer that passes on each text as Lines escapes it. Characters written in parts are assembled first. It is safe for
// concurrent use.
func NewWriter(to io.Writer) io.Writer { return &writer{to: to} }

type writer struct {
	to io.Writer

	mu sync.Mutex
	// rest is the beginning of a character that is not complete yet: at most three bytes.
	rest []byte
}

// Write implements io.Writer. It reports all of p as written, or none of it.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(w.rest, p...)
	whole := len(all)
	for n := 1; n < utf8.UTFMax && n <= len(all); n++ {
		if start := len(all) - n; utf8.RuneStart(all[start]) {
			if !utf8.FullRune(all[start:]) {
				whole = start
			}
			break
		}
	}
	w.rest = append([]byte(nil), all[whole:]...)
	if _, err := io.WriteString(w.to, Lines(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}
