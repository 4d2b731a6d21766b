package manifest

import (
	"context"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

const (
	// maxMatches is how many places an expression changes at most.
	maxMatches = 1000
	// maxProgram is the size of an expression, its repetitions written out.
	maxProgram = 2000
	// maxSearch bounds what it costs to find all matches: each search goes through the rest of the file with the whole expression, at worst.
	// It takes a few seconds, and cannot be stopped. maxWork bounds all that the expressions of a call cost.
	maxSearch = 100_000_000
	maxWork   = 4 * maxSearch
)

// editRegex replaces what the group of an expression matches. The expression has to match the same places afterwards, with the value: what
// does not fit its group would say something else there, and not be found the next time.
func editRegex(ctx context.Context, content []byte, at string, e Edit, left *int) ([]byte, error) {
	if strings.ContainsFunc(e.Value, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }) {
		return nil, problem(at+".value", "found %.100q, expected text without line breaks and control characters", e.Value)
	}
	parsed, err := syntax.Parse(e.Regex, syntax.Perl)
	if err != nil || parsed.MaxCap() != 1 {
		return nil, problem(at+".regex", "found %.200q, expected a regular expression (RE2) with one group, which is replaced", e.Regex)
	}
	size := programSize(parsed)
	if size > maxProgram {
		return nil, problem(at+".regex", "the expression is too large with its repetitions written out; expected fewer of them")
	}
	expression, err := regexp.Compile(e.Regex)
	if err != nil {
		return nil, problem(at+".regex", "found %.200q, expected a regular expression (RE2)", e.Regex)
	}
	found, err := groups(ctx, expression, size, content, at, left)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem(at+".regex", "nothing in the file matches %.200q", e.Regex)
	}
	var made []byte
	var expected [][2]int
	last := 0
	for _, m := range found {
		if len(made)+m[0]-last+len(e.Value) > maxSize {
			return nil, tooLarge(at)
		}
		made = append(made, content[last:m[0]]...)
		expected = append(expected, [2]int{len(made), len(made) + len(e.Value)})
		made, last = append(made, e.Value...), m[1]
	}
	if made = append(made, content[last:]...); len(made) > maxSize {
		return nil, tooLarge(at)
	}
	again, err := groups(ctx, expression, size, made, at, left)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(again, expected) {
		return nil, problem(at+".value", "%.100q does not fit the group of %.200q, which would match something else afterwards", e.Value, e.Regex)
	}
	return made, nil
}

// groups are the places that the group of an expression matches.
func groups(
	ctx context.Context, expression *regexp.Regexp, size int, content []byte, at string, left *int,
) (found [][2]int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("edit a file: %w", err)
	}
	each := size * (len(content) + 1)
	most := min(maxMatches, min(maxSearch, *left)/each-1)
	if most < 1 {
		return nil, problem(at+".regex", "the expressions are too large for a file of %d bytes; expected shorter ones, or fewer", len(content))
	}
	matches := expression.FindAllSubmatchIndex(content, most+1)
	*left -= each * (len(matches) + 1)
	if len(matches) > most {
		return nil, problem(at+".regex", "%.200q matches the file more than %d times, which is as often as its size allows", expression, most)
	}
	for _, m := range matches {
		if m[0] == m[1] {
			return nil, problem(at+".regex", "%.200q matches where there is nothing; expected one that matches text", expression)
		}
		if m[2] >= 0 {
			found = append(found, [2]int{m[2], m[3]})
		}
	}
	return found, nil
}

// programSize is about how many instructions an expression has, as far as that matters.
func programSize(e *syntax.Regexp) int {
	size := 1
	if e.Op == syntax.OpLiteral {
		size = len(e.Rune)
	}
	for _, sub := range e.Sub {
		size = min(size+programSize(sub), maxProgram+1)
	}
	if e.Op == syntax.OpRepeat {
		size *= max(e.Min, e.Max, 1) + 1
	}
	return min(size, maxProgram+1)
}
