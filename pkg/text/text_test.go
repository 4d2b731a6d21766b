package text_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/text"
)

func TestWhatATextIsShownAs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, lines, line string }{
		{"", "", ""},
		{"Grüße, 你好 ✓ 👍", "Grüße, 你好 ✓ 👍", "Grüße, 你好 ✓ 👍"},
		{"a\nb\tc", "a\nb\tc", `a\nb\tc`},
		{"\x1b[2J", `\u001b[2J`, `\u001b[2J`},
		{"all good\rnot", `all good\rnot`, `all good\rnot`},
		{"\x00\x07\x7f", `\u0000\u0007\u007f`, `\u0000\u0007\u007f`},
		{"\u009b2J", `\u009b2J`, `\u009b2J`},
		{"\x9b2J", `\x9b2J`, `\x9b2J`},
		{"\u202eabc\u2066", `\u202eabc\u2066`, `\u202eabc\u2066`},
		{"\U000e0041", `\udb40\udc41`, `\udb40\udc41`},
		{"\ufffd", "\ufffd", "\ufffd"},
	} {
		if got := text.Lines(c.in); got != c.lines {
			t.Errorf("Lines(%q): found %q, want %q", c.in, got, c.lines)
		}
		if got := text.Line(c.in); got != c.line {
			t.Errorf("Line(%q): found %q, want %q", c.in, got, c.line)
		}
	}
}

func TestControlCharactersAreFound(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "why: incident 81\n\tsee the log\r\n", "Grüße 你好 👍 \ufffd"} {
		if r, bad := text.Control(good); bad {
			t.Errorf("%q: found %s", good, text.Name(r))
		}
	}
	for bad, name := range map[string]string{
		"a\x00b": "U+0000", "\x1b[2J": "U+001B", "\x7f": "U+007F", "\u0085": "U+0085", "\u202e": "U+202E", "a\xffb": "a byte that is not UTF-8",
	} {
		if r, found := text.Control(bad); !found || text.Name(r) != name {
			t.Errorf("%q: found %s, %t; want %s", bad, text.Name(r), found, name)
		}
	}
}

// Characters arrive in parts when a program writes byte by byte, or a buffer ends in the middle of one.
func TestAWriterPutsCharactersTogether(t *testing.T) {
	t.Parallel()
	const in, want = "Grüße 👍 \u202e\x1b[2J \u009b \xe4\n", "Grüße 👍 \\u202e\\u001b[2J \\u009b \\xe4\n"
	var whole, bytewise bytes.Buffer
	if _, err := io.WriteString(text.NewWriter(&whole), in); err != nil || whole.String() != want {
		t.Errorf("found %q, %v; want %q", whole.String(), err, want)
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{text.NewWriter(&bytewise)}, iotest.OneByteReader(strings.NewReader(in)),
		make([]byte, 1)); err != nil || bytewise.String() != want {
		t.Errorf("found %q, %v; want %q", bytewise.String(), err, want)
	}
	if n, err := text.NewWriter(failing{}).Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("found %d, %v; want the error", n, err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestJSONStaysExact(t *testing.T) {
	t.Parallel()
	in := map[string]string{"reason\u202e": "\x1b[2J\u009b\u2066\U000e0041 Grüße\n\x7f"}
	encoded, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	shown := text.Lines(string(encoded))
	var out map[string]string
	if err := json.Unmarshal([]byte(shown), &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Error(diff)
	}
	if text.Unsafe(shown) {
		t.Errorf("found %q; want nothing that acts on a terminal", shown)
	}
}

func FuzzNothingUnsafeIsShown(f *testing.F) {
	for _, s := range []string{"a", "\x1b[2J", "\x9b", "\u202e\xff", "👍\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines, line := text.Lines(s), text.Line(s)
		if text.Unsafe(lines) || text.Unsafe(line) || strings.ContainsAny(line, "\n\t") {
			t.Errorf("%q: found %q and %q", s, lines, line)
		}
		if _, bad := text.Control(s); !bad && utf8.ValidString(s) && !strings.Contains(s, "\r") && lines != s && !text.Unsafe(s) {
			t.Errorf("%q became %q", s, lines)
		}
	})
}
