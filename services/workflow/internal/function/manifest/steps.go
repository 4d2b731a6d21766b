package manifest

import (
	"fmt"
	"strings"
)

// stepValues are the canary steps as a decoder reads them.
func stepValues(gates []int) []any {
	steps := make([]any, 0, 2*len(gates))
	for _, weight := range gates {
		steps = append(steps, map[string]any{"setWeight": weight}, map[string]any{"pause": map[string]any{}})
	}
	return steps
}

// flowSteps are the steps on one line, in JSON, which every style of YAML takes.
func flowSteps(gates []int) string {
	steps := make([]string, len(gates))
	for i, weight := range gates {
		steps[i] = fmt.Sprintf(`{"setWeight": %d}, {"pause": {}}`, weight)
	}
	return "[" + strings.Join(steps, ", ") + "]"
}

// flowValue is the steps below the rest of their path, on one line.
func flowValue(keys []string, gates []int) string {
	value := flowSteps(gates)
	for i := len(keys) - 1; i >= 0; i-- {
		value = fmt.Sprintf(`{"%s": %s}`, keys[i], value)
	}
	return value
}

// blockItems are the steps as lines, one item each at the indentation.
func blockItems(gates []int, indent int, eol string) string {
	var b strings.Builder
	pad := strings.Repeat(" ", indent)
	for _, weight := range gates {
		fmt.Fprintf(&b, "%s- setWeight: %d%s%s- pause: {}%s", pad, weight, eol, pad, eol)
	}
	return b.String()
}

// blockLines are the keys below each other, the first at the indentation, with the steps under the last.
func blockLines(keys []string, gates []int, indent int, eol string) string {
	var b strings.Builder
	for i, key := range keys {
		b.WriteString(strings.Repeat(" ", indent+2*i) + key + ":")
		if i == len(keys)-1 && len(gates) == 0 {
			b.WriteString(" []")
		}
		b.WriteString(eol)
	}
	b.WriteString(blockItems(gates, indent+2*len(keys), eol))
	return b.String()
}
