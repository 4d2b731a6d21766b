package command

import (
	"maps"
	"slices"
	"strings"
)

// Selector is labels in a few words, by key: team=web,tier=critical.
func Selector(labels map[string]string) string {
	all := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, ",")
}
