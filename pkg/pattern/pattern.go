// Package pattern has the patterns by which configurations say what is allowed: * stands for any text, none included, and everything else
// for itself. In a list, a pattern that begins with ! takes away from what the others allow.
package pattern

import (
	"slices"
	"strings"
)

// Match reports whether the pattern stands for the text. A * in the text is like any other character: only a * in the pattern matches it, so
// that a pattern in place of the text is matched only where all that it stands for is.
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
	// possible[j] says that what is left of a and b[j:] have a text in common, for every suffix of a, from the shortest on.
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

// Allows reports whether a list lets a text pass, or, for a pattern in place of the text, everything that it stands for.
func Allows(list []string, text string) bool {
	return Includes(list, text) && len(Excluded(list, text)) == 0
}

// Includes reports whether one of the list's patterns matches the text, whatever the others take away.
func Includes(list []string, text string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return !strings.HasPrefix(p, "!") && Match(p, text) })
}

// Excluded are the patterns, without their !, by which the list takes away from a text, or from what a pattern in its place stands for.
func Excluded(list []string, text string) []string {
	var all []string
	for _, p := range list {
		if taken, negative := strings.CutPrefix(p, "!"); negative && Overlap(taken, text) {
			all = append(all, taken)
		}
	}
	return all
}
