package manifest

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/yamltext"
)

// text is a manifest's bytes with an index of its lines.
type text struct {
	content []byte
	starts  []int // of each line
	edits   []edit
}

// edit replaces content[from:to].
type edit struct {
	from, to int
	with     string
}

//nolint:gochecknoglobals // a constant
var byteOrderMark = []byte("\ufeff")

func newText(content []byte) *text {
	t := &text{content: content, starts: []int{0}}
	for i, b := range content {
		if b == '\n' {
			t.starts = append(t.starts, i+1)
		}
	}
	return t
}

// masked is the content for the parser that counts lines and columns. It miscounts lines that end in CR LF, and takes a
// byte order mark for a letter; without them every line and column stays what it was.
func (t *text) masked() []byte {
	// The blank takes the place of CR, so offsets within a line stay as they are.
	m := bytes.TrimPrefix(t.content, byteOrderMark)
	return bytes.ReplaceAll(m, []byte("\r\n"), []byte(" \n"))
}

// offset is the byte at which a token begins. Columns count characters, from 1.
func (t *text) offset(p *token.Position) (int, bool) {
	if p == nil || p.Line < 1 || p.Line > len(t.starts) {
		return 0, false
	}
	at, end := t.starts[p.Line-1], t.lineEnd(p.Line)
	if p.Line == 1 && bytes.HasPrefix(t.content, byteOrderMark) {
		at += len(byteOrderMark)
	}
	for range p.Column - 1 {
		if at >= end {
			return 0, false
		}
		_, size := utf8.DecodeRune(t.content[at:])
		at += size
	}
	return at, at <= end
}

// lineEnd is where the line's content ends, before its line break. Lines count from 1.
func (t *text) lineEnd(line int) int {
	end := len(t.content)
	if line < len(t.starts) {
		end = t.starts[line] - 1
	}
	if end > t.starts[line-1] && t.content[end-1] == '\r' {
		end--
	}
	return end
}

// nextLine is where the line after begins; the end of the content for the last.
func (t *text) nextLine(line int) int {
	if line < len(t.starts) {
		return t.starts[line]
	}
	return len(t.content)
}

// eol is how the line ends.
func (t *text) eol(line int) string {
	if s := string(t.content[t.lineEnd(line):t.nextLine(line)]); s != "" {
		return s
	}
	return "\n"
}

func (t *text) line(line int) string { return string(t.content[t.starts[line-1]:t.lineEnd(line)]) }

// insertAfter adds lines after a line, which may be the last one without a line break.
func (t *text) insertAfter(line int, lines string) {
	at := t.nextLine(line)
	if at == t.lineEnd(line) {
		eol := t.eol(line)
		lines = eol + strings.TrimSuffix(lines, eol)
	}
	t.edits = append(t.edits, edit{at, at, lines})
}

// apply carries all edits out. They do not overlap: each is another value's place, and verify looks at the result.
// Should two overlap after all, the later one is left out, and verify refuses what comes of it.
func (t *text) apply() []byte {
	slices.SortFunc(t.edits, func(a, b edit) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, e := range t.edits {
		if e.from < at {
			continue
		}
		out = append(append(out, t.content[at:e.from]...), e.with...)
		at = e.to
	}
	return append(out, t.content[at:]...)
}

// scalar is the bytes of a scalar that stands on one line, without its quotes, and the quote: 0 for plain style.
func (t *text) scalar(n ast.Node) (from, to int, quote byte, ok bool) {
	tk := n.GetToken()
	from, ok = t.offset(tk.Position)
	if !ok || n.Type() == ast.LiteralType {
		return 0, 0, 0, false
	}
	end := t.lineEnd(tk.Position.Line)
	if from < end && (t.content[from] == '\'' || t.content[from] == '"') {
		quote = t.content[from]
		from++
		to, ok = closing(t.content[from:end], quote)
		return from, from + to, quote, ok
	}
	// The token's text has to stand there byte for byte. Where it does not (folded lines, escapes), the place is not
	// safe.
	to = from + len(tk.Value)
	if tk.Value == "" || to > end || string(t.content[from:to]) != tk.Value {
		return 0, 0, 0, false
	}
	return from, to, 0, to == end || strings.IndexByte(" \t,]}", t.content[to]) >= 0
}

// closing finds the quote that ends a quoted scalar.
func closing(s []byte, quote byte) (int, bool) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote == '"':
			i++
		case s[i] == quote && quote == '\'' && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i, true
		}
	}
	return 0, false
}

// plain reports whether the text is a string without quotes, to every reader.
func plain(s string) bool {
	var v any
	if yamltext.Ambiguous(s) || yaml.Unmarshal([]byte(s), &v) != nil {
		return false
	}
	return v == any(s)
}
