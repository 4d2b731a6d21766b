// Package near tells which of several names a wrong one may have meant, by how many bytes have to change. It knows nothing of what the
// names are of, and it corrects nothing: whoever reads the message does.
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
