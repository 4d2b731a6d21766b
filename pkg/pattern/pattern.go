// Package pattern matches the patterns that configurations use for allowed values: * matches any text, including none, and every other
// character matches itself. In a list, a pattern that begins with ! excludes what it matches.
package pattern

import (
	"slices"
	"strings"
)

// Match reports whether the pattern matches the text. A * in the text is an ordinary character that only a * in the pattern matches, so the
// text may itself be a pattern: it matches only if everything that it stands for does.
func Match(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// Overlap reports whether some text is matched by both patterns.
func Overlap(a, b string) bool {
	// possible[j] reports whether the rest of a and b[j:] have a text in common. The loop goes through the suffixes of a, the shortest
	// first.
	possible := make([]bool, len(b)+1)
	for j := len(b); j >= 0; j-- {
		possible[j] = strings.Trim(b[j:], "*") == ""
	}
	for i := len(a) - 1; i >= 0; i-- {
		shorter := slices.Clone(possible)
		for j := len(b); j >= 0; j-- {
			switch {
			case a[i] == '*':
				possible[j] = shorter[j] || (j < len(b) && possible[j+1])
			case j == len(b):
				possible[j] = false
			case b[j] == '*':
				possible[j] = possible[j+1] || shorter[j]
			default:
				possible[j] = a[i] == b[j] && shorter[j+1]
			}
		}
	}
	return possible[0]
}

// Allows reports whether a list allows a text or, if the text is a pattern, everything that it stands for.
func Allows(list []string, text string) bool {
	return Includes(list, text) && len(Excluded(list, text)) == 0
}

// Includes reports whether one of the list's patterns matches the text, whatever the list excludes.
func Includes(list []string, text string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return !strings.HasPrefix(p, "!") && Match(p, text) })
}

// Excluded returns the patterns, without their !, by which the list excludes the text, or part of what it stands for if it is a pattern.
func Excluded(list []string, text string) []string {
	var all []string
	for _, p := range list {
		if taken, negative := strings.CutPrefix(p, "!"); negative && Overlap(taken, text) {
			all = append(all, taken)
		}
	}
	return all
}
