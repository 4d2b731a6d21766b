package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/text"
)

// suggest returns the known keys that an unknown one may have meant.
func (s *schema) suggest(unknown string) string {
	limit := max(2, len(unknown)/3)
	type candidate struct {
		key      string
		distance int
	}
	var similar []candidate
	for _, key := range s.order {
		if d := text.Distance(unknown, key); d <= limit {
			similar = append(similar, candidate{key, d})
		}
	}
	if len(similar) == 0 {
		known := slices.Clone(s.order)
		slices.Sort(known)
		return "known keys are " + strings.Join(known, ", ")
	}
	slices.SortStableFunc(similar, func(a, b candidate) int { return a.distance - b.distance })
	names := make([]string, 0, 3)
	for _, c := range similar[:min(3, len(similar))] {
		names = append(names, fmt.Sprintf("%q", c.key))
	}
	return "did you mean " + strings.Join(names, " or ") + "?"
}
