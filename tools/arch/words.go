package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// allowed is the file with the number of terms that are left in each folder.
const allowed = "tools/arch/words.txt"

// term is a word or a phrase of the project's former dialect, which a newcomer has to translate.
type term struct {
	// words are the phrase, one element for each word; alternatives are separated by |.
	words []string
	// unlessBefore and unlessAfter are words beside the phrase that make it ordinary English.
	unlessBefore, unlessAfter []string
	// names limits the term to identifiers and to SQL: in a sentence it is ordinary English.
	names bool
	// instead is what to write.
	instead string
}

// terms lists them; CONTRIBUTING.md, Language, explains them.
func terms() []term {
	phrase := func(words, instead string) term { return term{words: strings.Fields(words), instead: instead} }
	name := func(words, instead string) term {
		return term{words: strings.Fields(words), instead: instead, names: true}
	}
	return []term{
		phrase("told|tell|tells|telling|teller", "reported, received, notified, recorded; to tell apart: distinguish"),
		phrase("somebody|whoever|whomever", "the caller, the owner, the member, another process"),
		{words: []string{"is|are|was|were", "nothing"}, unlessBefore: []string{"there"}, instead: "is a no-op, is empty, does not matter"},
		phrase("in hand", "owned, in progress, in flight"),
		phrase("own accord", "automatically"),
		phrase("for good", "permanently"),
		{words: []string{"goes|go|went|going|gone", "on"}, unlessAfter: []string{"top"}, instead: "continues"},
		phrase("stands|stand|stood|standing at|beside", "waits at, is at, runs next to"),
		phrase("way|ways back", "rollback"),
		phrase("looked for", "looked up, polled, searched for"),
		{
			words: []string{"is|are|was|were", "there"}, instead: "exists, is present, is available",
			unlessAfter: strings.Fields("a an any anything another no nothing something some still more such room one"),
		},
		phrase("asked about", "pending, queried"),
		phrase("in vain", "failed, without success"),
		phrase("twice is once", "is idempotent"),
		phrase("that|which|it is|are|was none", "malformed, not a …, absent"),
		phrase("be|is|are|was|were had", "is available, can be obtained, was consumed"),
		phrase("is|are|was|were|be|been said", "is documented, is reported, is recorded"),
		phrase("s to say|tell|decide|judge|know", "is decided by …, … owns it"),
		phrase("own|last|newest|latest|s word|words", "report, event, message, decision"),
		name("had", "consumed"),
		name("said|say|says", "reported, message"),
		name("came", "arrival, arrived"),
	}
}

// ignored reports whether a folder holds what is generated, recorded, written by others, or, as migrations, never edited.
func ignored(dir string) bool {
	base := path.Base(dir)
	return slices.Contains([]string{"node_modules", "dist", "bin", "golden", "migrations", "replay", "schemas"}, base) ||
		strings.HasPrefix(base, ".") && base != "." ||
		slices.Contains([]string{"services/registry/internal/source/testdata", "tools/e2e/cluster/manifests", "tools/charts/testdata"}, dir)
}

// readable reports whether people write and read this kind of file.
func readable(name string) bool {
	if slices.Contains([]string{"Makefile", "Dockerfile"}, path.Base(name)) {
		return true
	}
	return slices.Contains(strings.Fields(".go .md .proto .graphqls .graphql .star .ts .tsx .mjs .css .sql .sh .mk .yaml .yml .tpl .txtar .pml .conf"), path.Ext(name))
}

// finding is one occurrence of a term.
type finding struct {
	folder, file string
	line         int
	text         string
	instead      string
}

// findWords searches every file of a tree.
func findWords(tree fs.FS) ([]finding, error) {
	vocabulary := newVocabulary(terms())
	var found []finding
	err := fs.WalkDir(tree, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && ignored(file):
			return fs.SkipDir
		case d.IsDir() || !readable(file) || file == "tools/arch/words.go" || file == "tools/arch/words_test.go":
			return nil
		}
		content, err := fs.ReadFile(tree, file)
		if err != nil {
			return err
		}
		found = append(found, vocabulary.search(file, content)...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	return found, nil
}

// vocabulary maps a first word to the terms that begin with it.
type vocabulary map[string][]term

func newVocabulary(terms []term) vocabulary {
	v := vocabulary{}
	for _, t := range terms {
		for first := range strings.SplitSeq(t.words[0], "|") {
			v[first] = append(v[first], t)
		}
	}
	return v
}

// search finds the terms in a file and in its name. Generated code has none.
func (v vocabulary) search(file string, content []byte) []finding {
	var found []finding
	report := func(line int, text, instead string) {
		found = append(found, finding{folder: path.Dir(file), file: file, line: line, text: text, instead: instead})
	}
	for _, part := range partsOf(file, content) {
		words := split(part.text)
		for i := range words {
			t, n, ok := v.at(part.text, words, i, part.name)
			if !ok {
				continue
			}
			last := words[i+n-1]
			place := part.offset + words[i].start
			report(1+bytes.Count(content[:min(place, len(content))], []byte("\n")),
				strings.Join(strings.Fields(part.text[words[i].start:last.end]), " "), t.instead)
		}
	}
	return found
}

// at returns the term that begins at a word, and its number of words.
func (v vocabulary) at(text string, words []word, i int, isName bool) (term, int, bool) {
	for _, t := range v[words[i].lower] {
		if t.names && !isName || i+len(t.words) > len(words) {
			continue
		}
		matches := true
		for k, alternatives := range t.words {
			matches = matches && slices.Contains(strings.Split(alternatives, "|"), words[i+k].lower) &&
				(k == 0 || together(text[words[i+k-1].end:words[i+k].start]))
		}
		end := i + len(t.words)
		switch {
		case !matches:
		case i > 0 && slices.Contains(t.unlessBefore, words[i-1].lower):
		case end < len(words) && slices.Contains(t.unlessAfter, words[end].lower) && together(text[words[end-1].end:words[end].start]):
		default:
			return t, len(t.words), true
		}
	}
	return term{}, 0, false
}

// together reports whether the text between two words may be inside a phrase: a line break in a comment may, a full stop may not.
func together(between string) bool { return strings.Trim(between, " \t\r\n/#*_-") == "" }

// part is a section of a file that is searched as a whole.
type part struct {
	offset int
	text   string
	// name is set for an identifier, and for SQL outside comments.
	name bool
}

// partsOf splits a file into names and sentences; generated code has no parts. The file's own name is one of them.
func partsOf(file string, content []byte) []part {
	own := part{text: path.Base(file), name: true}
	switch path.Ext(file) {
	case ".go":
		if head, _, _ := bytes.Cut(content, []byte("\npackage ")); bytes.Contains(head, []byte("// Code generated ")) ||
			bytes.HasPrefix(content, []byte("// Code generated ")) {
			return nil
		}
		return append(goParts(content), own)
	case ".sql":
		if bytes.HasPrefix(content, []byte("-- Code generated ")) {
			return nil
		}
		parts, offset := []part{own}, 0
		for line := range strings.SplitAfterSeq(string(content), "\n") {
			code, comment, _ := strings.Cut(line, "--")
			parts = append(parts, part{offset: offset, text: code, name: true}, part{offset: offset + len(line) - len(comment), text: comment})
			offset += len(line)
		}
		return parts
	case ".md":
		return []part{own, {text: wordList.ReplaceAllStringFunc(string(content), func(list string) string {
			return strings.Repeat("\n", strings.Count(list, "\n"))
		})}}
	default:
		return []part{own, {text: string(content)}}
	}
}

// wordList matches the place where a page lists these words itself.
var wordList = regexp.MustCompile(`(?s)<!-- words -->.*?<!-- end of words -->`)

// goParts returns the identifiers, strings and comments of a Go file. Adjacent comments are one part.
func goParts(content []byte) []part {
	var (
		s     scanner.Scanner
		parts []part
	)
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(content))
	s.Init(file, content, nil, scanner.ScanComments) // errors are ignored: the compiler reports them
	after := token.EOF
	for {
		pos, tok, lit := s.Scan()
		offset := file.Offset(pos)
		switch tok {
		case token.EOF:
			return parts
		case token.COMMENT:
			if after == token.COMMENT {
				last := &parts[len(parts)-1]
				last.text = string(content[last.offset : offset+len(lit)])
			} else {
				parts = append(parts, part{offset: offset, text: lit})
			}
		case token.STRING, token.IDENT:
			parts = append(parts, part{offset: offset, text: lit, name: tok == token.IDENT})
		default:
		}
		after = tok
	}
}

// word is one word of a text, in lower case; an identifier such as goesOn has two.
type word struct {
	lower      string
	start, end int
}

// split returns the words of a text.
func split(text string) []word {
	var words []word
	start := -1
	end := func(at int) {
		if start >= 0 {
			words = append(words, word{lower: strings.ToLower(text[start:at]), start: start, end: at})
			start = -1
		}
	}
	for i := range len(text) {
		c := text[i]
		switch {
		case i > 0 && text[i-1] == '\\': // the letter of an escape such as \n
			end(i)
		case c >= 'a' && c <= 'z':
			if start < 0 {
				start = i
			}
		case c >= 'A' && c <= 'Z':
			if start >= 0 && text[i-1] >= 'a' {
				end(i)
			}
			if start < 0 {
				start = i
			}
		default:
			end(i)
		}
	}
	end(len(text))
	return words
}

// count returns the number of findings in each folder.
func count(found []finding) map[string]int {
	counts := map[string]int{}
	for _, f := range found {
		counts[f.folder]++
	}
	return counts
}

// readAllowed parses the file of counts. A folder that is listed twice, as after a merge, is an error: it has to be counted again.
func readAllowed(text []byte) (map[string]int, error) {
	counts := map[string]int{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		number, folder, ok := strings.Cut(s.Text(), " ")
		n, err := strconv.Atoi(number)
		if _, twice := counts[folder]; !ok || err != nil || twice {
			return nil, fmt.Errorf("found the line %q; expected one line for each folder, with a count and its path", s.Text())
		}
		counts[folder] = n
	}
	return counts, nil
}

// judgeWords compares what was found with what is allowed, and names the folders that differ.
func judgeWords(counts, allowed map[string]int) []string {
	var violations []string
	for folder := range merged(counts, allowed) {
		switch got, want := counts[folder], allowed[folder]; {
		case got > want:
			violations = append(violations, fmt.Sprintf(
				"%s: %d words that a stranger would not use, %d are allowed; go run ./tools/arch -words %s lists them", folder, got, want, folder))
		case got < want:
			violations = append(violations, fmt.Sprintf("%s: %d words that a stranger would not use, %d are allowed; go run ./tools/arch -count lowers the limit",
				folder, got, want))
		}
	}
	slices.Sort(violations)
	return violations
}

func merged(a, b map[string]int) map[string]bool {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

// checkWords compares the tree with the file of counts.
func checkWords() ([]string, error) {
	found, err := findWords(os.DirFS("."))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(allowed)
	if err != nil {
		return nil, fmt.Errorf("read what is allowed: %w", err)
	}
	limits, err := readAllowed(text)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v; go run ./tools/arch -count writes it again", allowed, err)}, nil
	}
	return judgeWords(count(found), limits), nil
}

// listWords prints every finding in a folder and below it, with what to write instead.
func listWords(out io.Writer, folder string) error {
	found, err := findWords(os.DirFS("."))
	if err != nil {
		return err
	}
	folder = path.Clean(folder)
	for _, f := range found {
		if folder == "." || f.folder == folder || f.file == folder || strings.HasPrefix(f.folder, folder+"/") {
			fmt.Fprintf(out, "%s:%d: %q: %s\n", f.file, f.line, f.text, f.instead)
		}
	}
	return nil
}

// writeCounts rewrites the file of counts. It refuses a larger total; counts may move from one folder to another, as files do.
func writeCounts() error {
	found, err := findWords(os.DirFS("."))
	if err != nil {
		return err
	}
	before, err := os.ReadFile(allowed)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read what is allowed: %w", err)
	}
	if limits, err := readAllowed(before); err == nil && len(limits) > 0 && sum(limits) < len(found) {
		return fmt.Errorf("found %d words that a stranger would not use, %d are allowed: write plainer ones (go run ./tools/arch -words FOLDER lists them)",
			len(found), sum(limits))
	}
	counts := count(found)
	folders := make([]string, 0, len(counts))
	for folder := range counts {
		folders = append(folders, folder)
	}
	slices.Sort(folders)
	var b bytes.Buffer
	for _, folder := range folders {
		fmt.Fprintf(&b, "%d %s\n", counts[folder], folder)
	}
	if err := os.WriteFile(allowed, b.Bytes(), 0o644); err != nil { //nolint:gosec // a file of the repository
		return fmt.Errorf("write what is allowed: %w", err)
	}
	return nil
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}
