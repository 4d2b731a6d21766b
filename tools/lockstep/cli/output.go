package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
)

// print writes v in the format asked for; table writes it for people.
func (c *command) print(v any, table func(io.Writer)) error {
	switch c.output {
	case "table":
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		table(w)
		return w.Flush()
	case "json":
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	case "yaml":
		return printYAML(c.out, v)
	default:
		return c.checkOutput()
	}
}

// checkOutput refuses a format before anything is changed.
func (c *command) checkOutput() error {
	switch c.output {
	case "table", "json", "yaml":
		return nil
	default:
		return fault.New(fault.Invalid, "output: found %q, expected table, json or yaml", c.output)
	}
}

// printYAML writes what JSON would say, with JSON's field names.
func printYAML(w io.Writer, v any) error {
	encoded, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	var plain any
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber()
	if err := d.Decode(&plain); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if encoded, err = yaml.Marshal(numbers(plain)); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_, err = w.Write(encoded)
	return err
}

// numbers makes whole numbers whole again, so that YAML shows 3 and not 3.0 or "3".
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = numbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = numbers(value)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // json.Number is a number
		return f
	}
	return v
}

// row writes one line of a table; empty cells become "-", and what would begin another cell or line is escaped.
func row(w io.Writer, cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
		cells[i] = text.Line(cells[i])
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func optional(t *time.Time) string {
	if t == nil {
		return ""
	}
	return moment(*t)
}

func short(digest string) string {
	algorithm, hex, ok := strings.Cut(digest, ":")
	if !ok || len(hex) < 12 {
		return digest
	}
	return algorithm + ":" + hex[:12]
}

// colours reports whether f is a terminal whose user has nothing against colours.
func colours(f *os.File, getenv func(string) string) bool {
	if getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
