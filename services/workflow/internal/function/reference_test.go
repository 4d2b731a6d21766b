package function

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core"
)

var update = flag.Bool("update", false, "rewrite the arguments in FUNCTIONS.md")

const reference = "../../FUNCTIONS.md"

// TestTheReferenceHasEveryFunction: whoever writes a program reads there what can be run, and with which arguments. The prose is
// written by hand, below a heading for each Function; the table of arguments is the declaration.
func TestTheReferenceHasEveryFunction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")
	declared := map[string]*Function{}
	for _, f := range append(All(&forge{}), Watching(WatchDeps{})...) {
		declared[f.Name()] = f.(*Function)
	}
	described := map[string]bool{core.EmitFunction: true}
	for i, section := range sections {
		name, _, _ := strings.Cut(strings.TrimPrefix(section, "`"), "`")
		f, known := declared[name]
		if !known {
			if strings.HasPrefix(section, "`") && name != core.EmitFunction {
				t.Errorf("found a section about %s, which is no Function", name)
			}
			continue
		}
		described[name] = true
		prose, table, found := strings.Cut(section, "\n| argument |")
		if !found {
			table = ""
		}
		want := "\n| argument | |\n|---|---|\n" + rows(f.spec.Arguments, "")
		if diff := cmp.Diff(want, "\n| argument |"+table); diff != "" && !*update {
			t.Errorf("%s: run go test ./services/workflow/internal/function -update (-want +got):\n%s", name, diff)
		}
		sections[i] = prose + want
	}
	for name := range declared {
		if !described[name] {
			t.Errorf("%s has no section of its own, expected what it does and answers", name)
		}
	}
	if *update {
		if err := os.WriteFile(reference, []byte(strings.Join(sections, "\n## ")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// rows are a table's rows of fields and of the fields within them.
func rows(fields []Field, under string) string {
	var b strings.Builder
	for _, f := range fields {
		needed := ""
		if f.Required {
			needed = ", required"
		}
		fmt.Fprintf(&b, "| `%s%s` | %s%s |\n", under, f.Name, f.expected(), needed)
		b.WriteString(rows(f.Fields, under+f.Name+"."))
		if f.Element != nil {
			each := *f.Element
			each.Name, each.Required = f.Name+"[]", each.Required && each.Type != Object
			b.WriteString(rows([]Field{each}, under))
		}
	}
	return b.String()
}
