package config

import (
	"fmt"
	"slices"
	"strings"
)

// suggest says which known keys an unknown one may have meant.
func (s *schema) suggest(unknown string) string {
	limit := max(2, len(unknown)/3)
	type candidate struct {
		key      string
		distance int
	}
	var near []candidate
	for _, key := range s.order {
		if d := distance(unknown, key); d <= limit {
			near = append(near, candidate{key, d})
		}
	}
	if len(near) == 0 {
		known := slices.Clone(s.order)
		slices.Sort(known)
		return "known keys are " + strings.Join(known, ", ")
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return a.distance - b.distance })
	names := make([]string, 0, 3)
	for _, c := range near[:min(3, len(near))] {
		names = append(names, fmt.Sprintf("%q", c.key))
	}
	return "did you mean " + strings.Join(names, " or ") + "?"
}

// distance is the number of single-byte edits that turn a into b (Levenshtein).
func distance(a, b string) int {
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
