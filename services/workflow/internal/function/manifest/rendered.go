package manifest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/secret/redact"
)

const (
	// mostRendered is how many objects of what was rendered are named.
	mostRendered = 30
	// maxRendered is how many bytes the differences of one rendering have.
	maxRendered = 12 << 10
	// maxReason is where a reason that a tool gives is cut, in characters.
	maxReason = 400
)

// Renderings compares what was rendered before and after a change: the names of the objects that differ, sorted as those of Resources, and
// what differs in the first of them. What it takes is bounded by what differs, whatever else was rendered.
func Renderings(ctx context.Context, before, after string) (names []string, diffs []Change, err error) {
	files := differing(before, after)
	all, unnamed, err := Resources(ctx, files)
	if err != nil {
		return nil, nil, err
	}
	more := max(0, len(all)-mostRendered)
	all = all[:len(all)-more]
	for _, one := range all {
		names = append(names, one.String())
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if unnamed > 0 {
		names = append(names, fmt.Sprintf("and %d documents that are too large, or have aliases or a key twice", unnamed))
	}
	diffs, err = resourceDiffs(ctx, files, all, maxRendered)
	return names, diffs, err
}

// differing are the documents that only one of two texts has, each as a file of its own.
func differing(before, after string) (files []Revision) {
	was, is := documentsOf(before), documentsOf(after)
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

// documentsOf are the documents of a text of YAML: a line that begins with three dashes ends one, also within a block.
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
			add(at)
		}
		at = end
	}
	add(len(text))
	return all
}

// Reason is a text of a tool about contents, for people to read: in one line, without what looks like a secret.
func Reason(text string) string {
	h := hider{key: make([]byte, sha256.Size)}
	_, _ = rand.Read(h.key) // it never fails
	text, _ = redact.Text(hiddenToken.ReplaceAllString(h.text("", text), "(hidden)"))
	text = strings.Join(strings.Fields(text), " ")
	if all := []rune(text); len(all) > maxReason {
		return string(all[:maxReason]) + "…"
	}
	return text
}
