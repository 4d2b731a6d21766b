// Package text defines which characters a text for people may contain, escapes any text so that it cannot control a terminal, and suggests
// which name a misspelt word may have meant. It neither translates nor formats.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Control returns the first character of s that no text for people needs: a control character other than tab, line feed and carriage
// return, a character that reverses or hides what is around it, or a byte that is not UTF-8 (utf8.RuneError). It reports false if there is
// none.
func Control(s string) (rune, bool) {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			return r, true
		}
		if r != '\r' && unsafe(r) {
			return r, true
		}
		i += size
	}
	return 0, false
}

// Name describes a character that Control has found: U+0000, or "a byte that is not UTF-8".
func Name(r rune) string {
	if r == utf8.RuneError {
		return "a byte that is not UTF-8"
	}
	return fmt.Sprintf("%U", r)
}

// Line returns s as one line for a terminal: control characters, line feeds and tabs included, are escaped as in JSON (\u001b).
func Line(s string) string { return escaped(s, true) }

// Lines is Line for a text of several lines: line feeds and tabs stay. Because the escapes are JSON's, and an encoder leaves such
// characters only inside strings, a JSON document keeps its value.
func Lines(s string) string { return escaped(s, false) }

// Unsafe reports whether a terminal or its reader may interpret s as something other than its characters; line feeds and tabs are safe.
func Unsafe(s string) bool { return !utf8.ValidString(s) || strings.ContainsFunc(s, unsafe) }

// unsafe reports characters that control a terminal or misrepresent the text. Unlike Control it includes the carriage return, which lets a
// line be overwritten.
func unsafe(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.Is(unicode.Cc, r): // C0, DEL and C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // order of writing
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separators
		return true
	case r == 0xfeff, r == 0x180e, r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f: // invisible
		return true
	}
	return false
}

func escaped(s string, oneLine bool) string {
	plain := func(r rune) bool { return !unsafe(r) && (!oneLine || r != '\n' && r != '\t') }
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1: // a C1 character to terminals that do not read UTF-8
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case plain(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r) // JSON has no other escape
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}
