package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/secret/redact"
)

const (
	// mostRendered is how many objects of what was rendered are named.
	mostRendered = 30
	// maxRendered is how many bytes the differences of one rendering have.
	maxRendered = 12 << 10
	// mostDocuments is how many documents a rendering may have to be compared, as many as drivers apply.
	mostDocuments = 2000
	// leastHidden is how long a value is that is hidden in reasons, in bytes: shorter ones are in any text.
	leastHidden = 4
	// abbreviated is how much of a value the decoder of YAML shows in its errors.
	abbreviated = 7
	// maxReason is where a reason that a tool gives is cut, in characters.
	maxReason = 400
)

// ErrTooManyDocuments is that of a rendering which is not compared.
var ErrTooManyDocuments = fmt.Errorf("what was rendered has more than %d documents", mostDocuments)

// Renderings compares what was rendered before and after a change: the names of the objects that differ, sorted as those of Resources, and
// what differs in the first of them. What it takes is bounded by what differs, whatever else was rendered.
func Renderings(ctx context.Context, before, after string) (names []string, diffs []Change, err error) {
	was, is := documentsOf(before), documentsOf(after)
	if len(was) > mostDocuments || len(is) > mostDocuments {
		return nil, nil, ErrTooManyDocuments
	}
	files := differing(was, is)
	all, of, unnamed, err := resources(ctx, files)
	if err != nil {
		return nil, nil, err
	}
	more := max(0, len(all)-mostRendered)
	all = all[:len(all)-more]
	wanted := map[int]bool{}
	for _, one := range all {
		names = append(names, one.String())
		for _, at := range of[one.resource] {
			wanted[at] = true
		}
	}
	var shown []Revision
	for at, f := range files {
		if wanted[at] {
			shown = append(shown, f)
		}
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if unnamed > 0 {
		names = append(names, fmt.Sprintf("and %d documents that are too large, or have aliases or a key twice", unnamed))
	}
	diffs, err = resourceDiffs(ctx, shown, all, maxRendered)
	return names, diffs, err
}

// differing are the documents that only one of two texts has, each as a file of its own.
func differing(was, is []string) (files []Revision) {
	count := map[string]int{}
	for _, d := range was {
		count[d]++
	}
	var added []Revision
	for i, d := range is {
		if count[d] > 0 {
			count[d]--
			continue
		}
		added = append(added, Revision{Path: fmt.Sprintf("after %d", i), After: d})
	}
	for i, d := range was {
		if count[d] > 0 {
			count[d]--
			files = append(files, Revision{Path: fmt.Sprintf("before %d", i), Before: d})
		}
	}
	return append(files, added...)
}

// documentsOf are the documents of a text of YAML, one more than may be compared at most: a line that begins with three dashes ends one,
// also within a block.
func documentsOf(text string) (all []string) {
	begin := 0
	add := func(end int) {
		if one := text[begin:end]; strings.TrimSpace(one) != "" {
			all = append(all, one)
		}
		begin = end
	}
	for at := 0; at < len(text); {
		end := len(text)
		if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if line := strings.TrimRight(text[at:end], " \t\r\n"); line == "---" || strings.HasPrefix(line, "--- ") {
			if add(at); len(all) > mostDocuments {
				return all
			}
		}
		at = end
	}
	add(len(text))
	return all
}

// Reason is a text of a tool about contents, for people to read: in one line of what can be printed, without what looks like a secret, and
// without what is in values, a text of YAML.
func Reason(text, values string) string {
	h := newHider()
	hide := func(text string) string { return hiddenToken.ReplaceAllString(h.text("", text), "(hidden)") }
	text = hide(printable(text))
	var replaced []string
	for _, value := range scalarsOf(values) {
		replaced = append(replaced, value, "(configured)")
		if hidden := hide(value); hidden != value { // a part of it
			replaced = append(replaced, hidden, "(configured)")
		}
	}
	text, _ = redact.Text(strings.NewReplacer(replaced...).Replace(text))
	text = strings.Join(strings.Fields(text), " ")
	if all := []rune(text); len(all) > maxReason {
		return string(all[:maxReason]) + "…"
	}
	return text
}

// printable is a text without what cannot be printed: PostgreSQL takes no NUL, and marks of direction would have it read as another one.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

// scalarsOf are the values in a text of YAML by their lines, as they are and as tools quote them, the longest first. Of what is no YAML
// they are its lines.
func scalarsOf(text string) (all []string) {
	add := func(value string) {
		for line := range strings.Lines(printable(value)) {
			if line = strings.TrimSpace(line); len(line) < leastHidden {
				continue
			}
			quoted := strconv.Quote(line)
			all = append(all, line, quoted[1:len(quoted)-1])
			if len(line) > abbreviated { // as the decoder of YAML shows it
				all = append(all, line[:abbreviated]+"...")
			}
		}
	}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!bool" && n.ShortTag() != "!!null" {
			add(n.Value)
		}
		for i, c := range n.Content {
			if n.Kind != yaml.MappingNode || i%2 == 1 {
				walk(c)
			}
		}
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		add(text)
	} else {
		walk(&root)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(all)
}
