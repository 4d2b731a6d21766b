package derive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	tableBegin = "<!-- values: written by make charts -->\n"
	tableEnd   = "<!-- end of values -->\n"
	mark       = "# -- "
)

// withTable is a README whose table of values is what the comments of values.yaml say.
func withTable(readme, values string) ([]byte, error) {
	text, err := os.ReadFile(readme)
	if err != nil {
		return nil, fmt.Errorf("read readme: %w", err)
	}
	before, rest, found := bytes.Cut(text, []byte(tableBegin))
	_, after, closed := bytes.Cut(rest, []byte(tableEnd))
	if !found || !closed {
		return nil, fmt.Errorf("%s: found no lines %q and %q, expected both", readme, tableBegin, tableEnd)
	}
	rows, err := Rows(values)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(tableBegin + "\n| value | default | |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", r.Path, r.Default, r.Text)
	}
	out.WriteString("\n" + tableEnd)
	out.Write(after)
	return out.Bytes(), nil
}

// Row is one documented value.
type Row struct {
	// Path is its keys with dots between them, Default its value as JSON, Text what is said of it.
	Path, Default, Text string
}

// Rows are the values of a values.yaml that have a comment which begins with "# -- ", in order. A leaf without one, its own or that
// of something it belongs to, is an error: a value that nobody explains is a value that nobody dares to set.
func Rows(path string) ([]Row, error) {
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
	return rows(nil, document.Content[0], "")
}

func rows(all []Row, mapping *yaml.Node, prefix string) ([]Row, error) {
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
			all = append(all, Row{path, string(standard), strings.ReplaceAll(text, "\n# ", " ")})
			continue
		}
		if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
			return nil, fmt.Errorf("%s: found no comment that begins with %q, expected one", path, mark)
		}
		var err error
		if all, err = rows(all, value, path+"."); err != nil {
			return nil, err
		}
	}
	return all, nil
}
