// Package chartvalues reads what the comments in the values.yaml of a Helm chart say of each value. The reference of the values is written
// from it, and the checks of the charts use it.
package chartvalues

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is one documented value of a chart.
type Value struct {
	// Path is its keys with dots between them, Default its default as JSON, Text its comment.
	Path, Default, Text string
}

// mark begins the comments that are descriptions.
const mark = "# -- "

// Read are the values in a values.yaml that have a comment that begins with "# -- ", in order. A value without one, its own or that of a
// mapping that it is in, is an error.
func Read(path string) ([]Value, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: expected one mapping", path)
	}
	return in(document.Content[0], "")
}

func in(mapping *yaml.Node, prefix string) ([]Value, error) {
	var all []Value
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		if _, text, ok := strings.Cut(key.HeadComment, mark); ok {
			var v any
			if err := value.Decode(&v); err != nil {
				return nil, fmt.Errorf("default of %s: %w", path, err)
			}
			standard, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("default of %s: %w", path, err)
			}
			all = append(all, Value{path, string(standard), strings.ReplaceAll(text, "\n# ", " ")})
			continue
		}
		if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
			return nil, fmt.Errorf("%s: found no comment that begins with %q; expected one", path, mark)
		}
		inside, err := in(value, path+".")
		if err != nil {
			return nil, err
		}
		all = append(all, inside...)
	}
	return all, nil
}
