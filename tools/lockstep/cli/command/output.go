package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Print writes v in the format asked for; table writes it for people.
func (c *Command) Print(v any, table func(io.Writer)) error {
	switch c.Output {
	case "table":
		w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
		table(w)
		return w.Flush()
	case "json":
		e := json.NewEncoder(c.Out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	case "yaml":
		return PrintYAML(c.Out, v)
	case "name":
		for _, name := range namesOf(v) {
			fmt.Fprintln(c.Out, name)
		}
		return nil
	default:
		return c.CheckOutput()
	}
}

// CheckOutput refuses a format before anything is changed.
func (c *Command) CheckOutput() error {
	switch c.Output {
	case "table", "json", "yaml":
		return nil
	default:
		return fault.New(fault.Invalid, "output: found %q, expected table, json or yaml", c.Output)
	}
}

// checkNamed is checkOutput for a command that may print what it answers with by name.
func (c *Command) checkNamed(cmd *cobra.Command) error {
	if c.Output != "name" {
		return c.CheckOutput()
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

// PrintYAML writes what JSON would say, with JSON's field names.
func PrintYAML(w io.Writer, v any) error {
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

// Row writes one line of a table; empty cells become "-", and what would begin another cell or line is escaped.
func Row(w io.Writer, cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
		cells[i] = text.Line(cells[i])
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// Moment is t in local time, and empty for the zero time.
func Moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// Optional is Moment of a time that may be absent.
func Optional(t *time.Time) string {
	if t == nil {
		return ""
	}
	return Moment(*t)
}

// Short is a digest with the first twelve of its hexadecimal digits.
func Short(digest string) string {
	algorithm, hex, ok := strings.Cut(digest, ":")
	if !ok || len(hex) < 12 {
		return digest
	}
	return algorithm + ":" + hex[:12]
}

// Number is n in decimal.
func Number(n int) string { return strconv.Itoa(n) }

// Compact is v as JSON on one line.
func Compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// SeenAt reports whether the digest of a version was seen at its registry. One that was not does not become the newest.
func SeenAt(v client.Version) string {
	switch {
	case v.DigestSeen == nil:
		return ""
	case *v.DigestSeen:
		return "yes"
	}
	return "no"
}
