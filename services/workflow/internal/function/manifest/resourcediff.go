package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	// mostDiffed is how many objects of a change have their differences shown, and maxObjectDiffs how many bytes these have together.
	mostDiffed     = 40
	maxObjectDiffs = 40 << 10
	// mostDocument is how large an object is whose differences are shown, in bytes as they are shown, and mostDepth how deep.
	mostDocument = 32 << 10
	mostDepth    = 100
)

// ResourceDiffs are what differs in the first of some objects that Resources has found in the same files: as they would be applied, with
// keys in order and without comments. Of secrets there are keys and no values.
func ResourceDiffs(ctx context.Context, files []Revision, all []Resource) ([]Change, error) {
	return resourceDiffs(ctx, files, all, maxObjectDiffs)
}

// resourceDiffs is ResourceDiffs within so many bytes.
func resourceDiffs(ctx context.Context, files []Revision, all []Resource, most int) ([]Change, error) {
	shown := all[:min(len(all), mostDiffed)]
	before, after := map[resource]string{}, map[resource]string{}
	for _, r := range shown {
		before[r.resource], after[r.resource] = "", ""
	}
	h := newHider()
	for _, f := range files {
		if len(f.Before) > mostObjects || len(f.After) > mostObjects {
			continue
		}
		if err := errors.Join(h.documents(ctx, f.Before, before), h.documents(ctx, f.After, after)); err != nil {
			return nil, err
		}
	}
	revisions := make([]Revision, len(shown))
	for i, r := range shown {
		was, is := settle(before[r.resource], after[r.resource])
		revisions[i] = Revision{Path: r.String(), Before: was, After: is}
	}
	changes, err := Diff(revisions, most)
	for i := range changes { // the head names files, and there are none
		if at := strings.Index(changes[i].Diff, "@@"); at >= 0 {
			changes[i].Diff = changes[i].Diff[at:]
		} else {
			changes[i].Diff = ""
		}
	}
	return changes, err
}

// documents writes those of the wanted objects that a file has. What is too large is left empty.
func (h hider) documents(ctx context.Context, text string, wanted map[resource]string) error {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for ctx.Err() == nil {
		var d yaml.Node
		if err := decoder.Decode(&d); err != nil { // the end, or what is no YAML, which was reported of the file already
			return nil //nolint:nilerr // see above
		}
		r, is := resourceOf(&d)
		if _, want := wanted[r]; !is || !want {
			continue
		}
		if _, err := digestOf(&d); err != nil { // aliases can stand for any amount of text
			continue
		}
		root := d.Content[0]
		if deeper(root, mostDepth) { // its indentation would be larger than its text by far
			continue
		}
		h.hide(root, "", false)
		tidy(root)
		b := bounded{ctx: ctx}
		encoder := yaml.NewEncoder(&b)
		encoder.SetIndent(2)
		if err := errors.Join(encoder.Encode(root), encoder.Close()); err == nil {
			wanted[r] = b.String()
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read a manifest: %w", err)
	}
	return nil
}

// bounded is a text of a bounded size: writing beyond it, or after the end of the context, is an error.
type bounded struct {
	strings.Builder

	ctx context.Context //nolint:containedctx // it writes within one call
}

var errTooLarge = errors.New("it is too large to be shown")

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > mostDocument {
		return 0, errTooLarge
	}
	if err := b.ctx.Err(); err != nil {
		return 0, fmt.Errorf("write an object: %w", err)
	}
	b.WriteString(string(p))
	return len(p), nil
}

// deeper reports whether a node has more levels than some.
func deeper(n *yaml.Node, levels int) bool {
	return levels < 0 || slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return deeper(c, levels-1) })
}

// tidy puts the keys of a node into order, and takes its comments and its style away.
func tidy(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	n.Style &^= yaml.FlowStyle
	for _, c := range n.Content {
		tidy(c)
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	pairs := slices.Collect(slices.Chunk(n.Content, 2))
	slices.SortStableFunc(pairs, func(a, b []*yaml.Node) int { return strings.Compare(a[0].Value, b[0].Value) })
	n.Content = slices.Concat(pairs...)
}

// settle says of each hidden value whether it is the same before and after.
func settle(before, after string) (was, is string) {
	of := func(text string) map[string]bool {
		all := map[string]bool{}
		for _, t := range hiddenToken.FindAllString(text, -1) {
			all[t] = true
		}
		return all
	}
	first, second := of(before), of(after)
	replace := func(text, other string, known map[string]bool) string {
		return hiddenToken.ReplaceAllStringFunc(text, func(t string) string {
			if known[t] {
				return "(hidden)"
			}
			return other
		})
	}
	return replace(before, "(hidden, as it was)", second), replace(after, "(hidden, as it will be)", first)
}
