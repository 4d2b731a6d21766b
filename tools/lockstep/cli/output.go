package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
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
	case "name":
		for _, name := range namesOf(v) {
			fmt.Fprintln(c.out, name)
		}
		return nil
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

// checkNamed is checkOutput for a command that may print what it answers with by name.
func (c *command) checkNamed(cmd *cobra.Command) error {
	if c.output != "name" {
		return c.checkOutput()
	}
	if parent := cmd.Parent(); parent == nil || !slices.Contains(namedNouns(), parent.Name()) || !slices.Contains(namedVerbs(), cmd.Name()) {
		return fault.New(fault.Invalid, "output: %s has no format name; expected table, json or yaml", cmd.CommandPath())
	}
	if watch := cmd.Flags().Lookup("watch"); watch != nil && watch.Changed {
		return fault.New(fault.Invalid, "output: --watch has no format name; expected table, json or yaml")
	}
	return nil
}

// namedNouns and namedVerbs are the commands that print with -o name what other commands take.
func namedNouns() []string {
	return []string{"application", "environment", "version-set", "rollout", "agent", "member", "group", "source"}
}

func namedVerbs() []string { return []string{"list", "get", "create", "add", "rollback", "wait"} }

// namesOf are what other commands name the objects of an answer by: a name, or an identifier.
func namesOf(v any) []string {
	switch v := v.(type) {
	case client.Application:
		return []string{v.Name}
	case client.Environment:
		return []string{v.Name}
	case client.Agent:
		return []string{v.Name}
	case client.Member:
		return []string{v.Name}
	case client.Group:
		return []string{v.Name}
	case client.VersionSet:
		return []string{v.ID}
	case client.Rollout:
		return []string{v.ID}
	case client.Source:
		return []string{v.ID}
	}
	list := reflect.ValueOf(v)
	if list.Kind() != reflect.Slice {
		return nil
	}
	var all []string
	for i := range list.Len() {
		all = append(all, namesOf(list.Index(i).Interface())...)
	}
	return all
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
