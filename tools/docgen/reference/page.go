package reference

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// intros are the introductions of the pages: the title, and what a reader has to know before the lists.
//
//go:embed intro/*.md
var intros embed.FS

// page is one page of Markdown.
type page struct {
	// name is its path relative to Folder, with slashes.
	name string
	text strings.Builder
}

// newPage is a page with the introduction of its name. source says what the rest of the page is written from.
func newPage(name, source string) (*page, error) {
	intro, err := intros.ReadFile("intro/" + strings.ReplaceAll(name, "/", "-"))
	if err != nil {
		return nil, fmt.Errorf("introduction of %s: %w", name, err)
	}
	if !strings.HasPrefix(string(intro), "# ") {
		return nil, fmt.Errorf("introduction of %s: expected a title in its first line", name)
	}
	p := &page{name: name}
	p.text.WriteString(notice(source) + string(intro))
	return p, nil
}

// barePage is a page without an introduction of its own.
func barePage(name, title, description, source string) *page {
	p := &page{name: name}
	p.text.WriteString(notice(source) + "# " + title + "\n\n" + prose(sentence(description)) + "\n")
	return p
}

// written begins every page that is not written by hand.
const written = "<!-- Written by `make generate` from "

// notice is for people who are about to change a page.
func notice(source string) string { return written + source + ". Change that, not this page. -->\n\n" }

func (p *page) bytes() []byte { return []byte(p.text.String()) }

// heading begins a section. Its anchor is made from its text, which is unique in the page.
func (p *page) heading(level int, text string) {
	fmt.Fprintf(&p.text, "\n%s %s\n", strings.Repeat("#", level), text)
}

// paragraph adds text that is Markdown already; empty text adds nothing.
func (p *page) paragraph(markdown string) {
	if markdown != "" {
		fmt.Fprintf(&p.text, "\n%s\n", markdown)
	}
}

// code adds a block of code.
func (p *page) code(language, text string) {
	fmt.Fprintf(&p.text, "\n```%s\n%s\n```\n", language, strings.Trim(text, "\n"))
}

// list adds a list of items that are Markdown.
func (p *page) list(items ...string) {
	p.text.WriteByte('\n')
	for _, item := range items {
		p.text.WriteString("- " + item + "\n")
	}
}

// table adds a table of cells that are Markdown; no rows, no table.
func (p *page) table(header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.text.WriteByte('\n')
	p.row(header)
	p.text.WriteString(strings.Repeat("| --- ", len(header)) + "|\n")
	for _, row := range rows {
		p.row(row)
	}
}

func (p *page) row(cells []string) {
	for _, cell := range cells {
		p.text.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`))
		if cell != "" {
			p.text.WriteByte(' ')
		}
	}
	p.text.WriteString("|\n")
}

// code is text as code within a line.
func code(text string) string {
	switch {
	case text == "":
		return ""
	case strings.Contains(text, "`"):
		return "`` " + text + " ``"
	default:
		return "`" + text + "`"
	}
}

// prose is plain text of a comment or a description as Markdown. What stands between backquotes is code; everything else is text, whatever
// characters it has.
func prose(text string) string {
	var out strings.Builder
	for i, part := range strings.Split(strings.TrimSpace(text), "`") {
		if i%2 == 1 {
			out.WriteString("`" + part + "`")
			continue
		}
		out.WriteString(strings.NewReplacer(`\`, `\\`, "<", `\<`, "{", `\{`, "*", `\*`, " _", ` \_`).Replace(part))
	}
	return out.String()
}

// sentence is text with a capital letter in front and a full stop behind. A first word that is a name, or that a colon explains, stays as
// it is.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, _, _ := strings.Cut(text, " ")
	if first != "lockstep" && !strings.ContainsAny(first, ":=_`@/-.") {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}

// anchor is the anchor of a heading: lower case, hyphens for blanks, no punctuation, as forges and the site make it.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return r
		default:
			return -1
		}
	}, strings.ToLower(heading))
}

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
