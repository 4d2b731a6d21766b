// Package near suggests which of several names a misspelt one may have meant, by edit distance in bytes. It knows nothing about what the
// names refer to, and corrects nothing: it is for error messages.
package near

import (
	"cmp"
	"slices"
)

// Order are the names, those that are nearest to a word first, and equally near ones by the alphabet.
func Order(word string, names []string) []string {
	sorted := slices.Clone(names)
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(Distance(word, a), Distance(word, b)), cmp.Compare(a, b))
	})
	return sorted
}

// Distance is the number of single-byte edits that turn a into b (Levenshtein).
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
