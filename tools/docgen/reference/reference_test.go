package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	graphql "github.com/vektah/gqlparser/v2/ast"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/event"
	autoflowv1 "github.com/lockstep-cd/lockstep/proto/lockstep/autoflow/v1"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli"
)

const root = "../../.."

var pages = sync.OnceValues(func() (map[string][]byte, error) { return Pages(root) })

// text is a page as it is written now.
func text(t *testing.T, name string) string {
	t.Helper()
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	if all[name] == nil {
		t.Fatalf("there is no page %s", name)
	}
	return string(all[name])
}

// section is the part of a page below a heading, up to the next one of the same level or above.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	lines, inside, level := []string{}, false, 0
	for line := range strings.Lines(text(t, page)) {
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		title := strings.TrimSpace(strings.TrimLeft(line, "#"))
		switch {
		case marks > 0 && !inside && title == heading:
			inside, level = true, marks
		case marks > 0 && inside && marks <= level:
			return strings.Join(lines, "")
		case inside:
			lines = append(lines, line)
		}
	}
	if !inside {
		t.Errorf("%s has no section %q", page, heading)
	}
	return strings.Join(lines, "")
}

// has expects text in a section.
func has(t *testing.T, what, in, want string) {
	t.Helper()
	if !strings.Contains(in, want) {
		t.Errorf("%s: expected %s in its section", what, want)
	}
}

// TestPagesAreWritten compares the pages in the tree with those that are written now.
func TestPagesAreWritten(t *testing.T) {
	t.Parallel()
	stale, err := Stale(root, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stale {
		t.Errorf("%s differs from what it is written from; run `make generate`", name)
	}
}

// TestStaleWritesAndDeletes: a page that is no page any more goes, one that is written by hand stays.
func TestStaleWritesAndDeletes(t *testing.T) {
	t.Parallel()
	checkout := t.TempDir()
	for _, name := range []string{"pkg", "proto", "services", "charts"} {
		absolute, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(absolute, filepath.Join(checkout, name)); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(checkout, Folder)
	for name, content := range map[string]string{
		"gone.md": written + "nothing. -->\n", "hand.md": "# By hand\n",
		"cli.md": "# Something else\n",
	} {
		if err := save(filepath.Join(folder, name), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	stale, err := Stale(checkout, true)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	if len(stale) != len(all)+1 {
		t.Errorf("%d files were stale, expected %d pages and the one that is not a page", len(stale), len(all))
	}
	if again, err := Stale(checkout, false); err != nil || len(again) > 0 {
		t.Errorf("after writing, %v are stale, %v", again, err)
	}
	found, err := files(folder)
	if err != nil {
		t.Fatal(err)
	}
	if found["gone.md"] != nil || string(found["hand.md"]) != "# By hand\n" || !bytes.Equal(found["cli.md"], all["cli.md"]) {
		t.Errorf("expected gone.md to be deleted, hand.md to stay and cli.md to be written")
	}
}

// TestEveryKeyIsListed compares the pages with the keys that a service's own --help has.
func TestEveryKeyIsListed(t *testing.T) {
	t.Parallel()
	for service, help := range map[string]string{
		"registry": usage[registry.Config](t, "registry"), "domain": usage[domain.Config](t, "domain"),
		"workflow": usage[workflow.Config](t, "workflow"), "relay": usage[relay.Config](t, "relay"),
	} {
		keys := regexp.MustCompile(`(?m)^  (\S+) +(LOCKSTEP_\S+) `).FindAllStringSubmatch(help, -1)
		if len(keys) < 20 {
			t.Fatalf("%s: found %d keys in its --help, expected more:\n%s", service, len(keys), help)
		}
		for _, key := range keys {
			part := section(t, "configuration/"+service+".md", key[1])
			has(t, service+" "+key[1], part, "Environment variable: `"+key[2]+"`")
			has(t, service+" "+key[1], part, "Type: ")
			if len(strings.TrimSpace(part[strings.LastIndex(part, "\n- "):])) < 20 {
				t.Errorf("%s %s has no meaning", service, key[1])
			}
		}
	}
}

// usage is the list of keys in the help of a service.
func usage[T any](t *testing.T, service string) string {
	t.Helper()
	_, err := config.Load[T](service, []string{"--help"})
	if !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("help of %s: %v", service, err)
	}
	return err.Error()
}

// TestNoGoNamesInConfiguration: readers know the keys, not the fields of the code.
func TestNoGoNamesInConfiguration(t *testing.T) {
	t.Parallel()
	for _, s := range services() {
		page := text(t, "configuration/"+s.service+".md")
		for _, key := range s.keys {
			if name := key.Field.Name; len(regexp.MustCompile(`[A-Z]`).FindAllString(name, 2)) > 1 &&
				regexp.MustCompile(`\b`+name+`\b`).MatchString(page) {
				t.Errorf("configuration/%s.md names the Go field %s; expected %s", s.service, name, key.Name)
			}
		}
	}
}

// TestEveryCommandIsListed compares the page with the tree of commands.
func TestEveryCommandIsListed(t *testing.T) {
	t.Parallel()
	global := section(t, "cli.md", "Flags of all commands")
	cli.Command("").PersistentFlags().VisitAll(func(f *pflag.Flag) { has(t, "all commands", global, "--"+f.Name) })
	commands := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Hidden || sub.Name() == "help" {
				continue
			}
			commands++
			part := section(t, "cli.md", sub.CommandPath())
			has(t, sub.CommandPath(), part, sub.UseLine())
			sub.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
				if f.Usage == "" {
					t.Errorf("%s: --%s has no description", sub.CommandPath(), f.Name)
				}
				has(t, sub.CommandPath(), part, "--"+f.Name)
			})
			if sub.Short == "" {
				t.Errorf("%s has no description", sub.CommandPath())
			}
			if _, known := cli.Outputs()[strings.TrimPrefix(sub.CommandPath(), "lockstep ")]; known {
				has(t, sub.CommandPath(), section(t, "output.md", "Commands"), "`"+sub.CommandPath()+"`")
			}
			check(sub)
		}
	}
	check(cli.Command(""))
	if commands < 80 {
		t.Errorf("found %d commands, expected more", commands)
	}
	codes := section(t, "cli.md", "Exit codes")
	for _, line := range regexp.MustCompile(`(?m)^  (\d+)  `).FindAllStringSubmatch(cli.Command("").Long, -1) {
		has(t, "exit codes", codes, "| `"+line[1]+"` |")
	}
}

// TestEveryEventIsListed compares the page with the catalogue, and with the schema of each payload.
func TestEveryEventIsListed(t *testing.T) {
	t.Parallel()
	for _, d := range event.Catalogue() {
		part := section(t, "events.md", d.Type)
		has(t, d.Type, part, "Subject: `"+d.Pattern()+"`")
		has(t, d.Type, part, "Emitted by: "+string(d.EmittedBy[0]))
		schema, err := os.ReadFile(filepath.Join(root, "pkg/event/schema", d.Type+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range properties(t, schema) {
			if !strings.Contains(part, "| `"+name+"`") && !strings.Contains(part, "."+name+"`") {
				t.Errorf("%s: expected the field %s in its table", d.Type, name)
			}
		}
	}
}

// properties are the names of all properties in a JSON Schema, at any depth.
func properties(t *testing.T, schema []byte) []string {
	t.Helper()
	var document any
	if err := json.Unmarshal(schema, &document); err != nil {
		t.Fatal(err)
	}
	var names []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, inside := range v {
				if key == "if" || key == "then" || key == "else" || key == "not" {
					continue // conditions about properties that are declared elsewhere
				}
				if declared, ok := inside.(map[string]any); ok && key == "properties" {
					for name, of := range declared {
						if _, isSchema := of.(map[string]any); isSchema {
							names = append(names, name)
						}
					}
				}
				walk(inside)
			}
		case []any:
			for _, inside := range v {
				walk(inside)
			}
		}
	}
	walk(document)
	return names
}

// TestEverySchemaFieldIsListed compares the pages with the properties of the schemas that they are written from.
func TestEverySchemaFieldIsListed(t *testing.T) {
	t.Parallel()
	for pattern, page := range map[string]string{
		"pkg/flow/flow.json": "flow.md", "pkg/driver/manifest.json": "manifests.md", "pkg/source/kinds/*.json": "artifact-sources.md",
		"pkg/driver/bundles/*/v*/*.json": "drivers.md",
	} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: found %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			schema, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, property := range properties(t, schema) {
				if page := text(t, page); property != "type" && !strings.Contains(page, "| `"+property+"`") &&
					!strings.Contains(page, "."+property+"`") {
					t.Errorf("%s: %s is not listed", name, property)
				}
			}
		}
	}
}

// TestEveryRPCIsListed compares the page with the descriptors in the generated code.
func TestEveryRPCIsListed(t *testing.T) {
	t.Parallel()
	for _, method := range autoflowv1.AutoFlow_ServiceDesc.Methods {
		has(t, method.MethodName, section(t, "grpc.md", method.MethodName), "`/lockstep.autoflow.v1.AutoFlow/"+method.MethodName+"`")
	}
	for _, stream := range autoflowv1.AutoFlow_ServiceDesc.Streams {
		has(t, stream.StreamName, section(t, "grpc.md", stream.StreamName), "Response: stream of ")
	}
	for _, method := range autoflowv1.Reconciliation_ServiceDesc.Methods {
		has(t, method.MethodName, section(t, "grpc.md", method.MethodName), "`/lockstep.autoflow.v1.Reconciliation/"+method.MethodName+"`")
	}
	for _, file := range []protoreflect.FileDescriptor{
		autoflowv1.File_lockstep_autoflow_v1_autoflow_proto,
		autoflowv1.File_lockstep_autoflow_v1_reconcile_proto,
		sourcesv1.File_lockstep_sources_v1_sources_proto,
	} {
		for i := range file.Messages().Len() {
			message := file.Messages().Get(i)
			part := section(t, "grpc.md", string(message.Name()))
			if strings.TrimSpace(strings.Split(part, "|")[0]) == "" {
				t.Errorf("%s has no description", message.Name())
			}
			for j := range message.Fields().Len() {
				has(t, string(message.Name()), part, "| `"+string(message.Fields().Get(j).Name())+"` |")
			}
		}
		for i := range file.Enums().Len() {
			for j := range file.Enums().Get(i).Values().Len() {
				has(t, "grpc.md", section(t, "grpc.md", string(file.Enums().Get(i).Name())), "`"+string(file.Enums().Get(i).Values().Get(j).Name())+"`")
			}
		}
	}
	for row := range strings.Lines(text(t, "grpc.md")) {
		if strings.HasPrefix(row, "| `") && strings.HasSuffix(strings.TrimSpace(row), "| |") {
			t.Errorf("grpc.md: %s has no description", row)
		}
	}
}

// selfExplaining are the fields of the GraphQL API that need no description, whatever type has them.
func selfExplaining() []string {
	return []string{"id", "name", "description", "createdAt", "startedAt", "finishedAt", "cursor", "startCursor", "endCursor"}
}

// TestEveryGraphQLTypeIsListed compares the pages with the schema, in which every type says what it is, and every value that is no object
// what it means.
func TestEveryGraphQLTypeIsListed(t *testing.T) {
	t.Parallel()
	schema, err := graphSchema(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, definition := range schema.Types {
		if definition.BuiltIn || isRoot(schema, definition) {
			continue
		}
		part := section(t, "graphql/"+definition.Position.Src.Name+".md", name)
		if definition.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for _, field := range definition.Fields {
			if !strings.HasPrefix(field.Name, "__") {
				has(t, name, part, "| `"+field.Name)
				explained(t, schema, name, field)
			}
		}
		for _, value := range definition.EnumValues {
			has(t, name, part, "| `"+value.Name+"` |")
		}
	}
	overview, operations := text(t, "graphql.md"), 0
	for _, kind := range roots(schema) {
		for _, field := range kind.fields {
			operations++
			part := section(t, "graphql/"+field.Position.Src.Name+".md", kind.word+" "+field.Name)
			has(t, field.Name, part, signature(field))
			has(t, field.Name, overview, "["+field.Name+"](")
			if field.Description == "" {
				t.Errorf("%s %s has no description", kind.word, field.Name)
			}
		}
	}
	if operations < 60 {
		t.Errorf("found %d operations, expected more", operations)
	}
}

// explained expects a description of a field, but for those whose type or name says it all.
func explained(t *testing.T, schema *graphql.Schema, of string, field *graphql.FieldDefinition) {
	t.Helper()
	if field.Description != "" || slices.Contains(selfExplaining(), field.Name) {
		return
	}
	if kind := schema.Types[field.Type.Name()].Kind; kind != graphql.Scalar {
		return // its own section says what it is
	}
	t.Errorf("%s.%s has no description", of, field.Name)
}

// TestEveryMetricIsListed compares the page with all names of metrics that are written in the code.
func TestEveryMetricIsListed(t *testing.T) {
	t.Parallel()
	found := 0
	for _, dir := range []string{"pkg", "services"} {
		for _, literal := range literals(t, filepath.Join(root, dir)) {
			if !regexp.MustCompile(`^lockstep_[a-z_]+$`).MatchString(literal) || slices.Contains(notMetrics(), literal) {
				continue
			}
			found++
			part := section(t, "metrics.md", literal)
			has(t, literal, part, "Type: ")
			has(t, literal, part, "Exposed by: ")
		}
	}
	if found < 50 {
		t.Errorf("found %d metrics in the code, expected more", found)
	}
}

// notMetrics are other names in the code that look like those of metrics: a role, a schema.
func notMetrics() []string { return []string{"lockstep_domain", "lockstep_test"} }

// literals are all strings in the Go code of a folder, without tests and generated code.
func literals(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			strings.HasSuffix(name, ".generated.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					all = append(all, value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryFunctionIsListed compares the page with the declarations, and with every error code in the code of engine and relay.
func TestEveryFunctionIsListed(t *testing.T) {
	t.Parallel()
	for _, f := range workflow.Functions() {
		part := section(t, "functions.md", f.Name)
		for _, a := range f.Arguments {
			has(t, f.Name, part, "| `"+a.Name+"` |")
		}
	}
	section(t, "functions.md", workflow.EmitFunction)
	codes := section(t, "functions.md", "Error codes")
	found := 0
	for _, dir := range []string{"services/workflow/internal", "services/relay/internal/core"} {
		for name, value := range codeConstants(t, filepath.Join(root, dir)) {
			found++
			has(t, name, codes, "| `"+value+"` |")
		}
	}
	if found < 12 {
		t.Errorf("found %d codes, expected more", found)
	}
}

// codeConstants are the string constants whose names begin with Code, in a folder.
func codeConstants(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !regexp.MustCompile(`^Code[A-Z]`).MatchString(spec.Names[0].Name) {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					found[entry.Name()+" "+spec.Names[0].Name] = value
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestEveryChartValueIsListed compares the page with the values: each has a row, or is inside one that has.
func TestEveryChartValueIsListed(t *testing.T) {
	t.Parallel()
	for _, chart := range []string{"lockstep", "lockstep-relay"} {
		content, err := os.ReadFile(filepath.Join(root, "charts", chart, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var values map[string]any
		if err := yaml.Unmarshal(content, &values); err != nil {
			t.Fatal(err)
		}
		part := section(t, "chart-values.md", chart)
		var check func(values map[string]any, under string)
		check = func(values map[string]any, under string) {
			for key, value := range values {
				if strings.Contains(part, "| `"+under+key+"` |") {
					continue
				}
				if inside, ok := value.(map[string]any); ok && len(inside) > 0 {
					check(inside, under+key+".")
				} else {
					t.Errorf("%s: %s%s is not listed", chart, under, key)
				}
			}
		}
		check(values, "")
	}
}

// TestAnchorsAreUnique: every heading of a page has an anchor of its own, which stays when others are added. tools/arch follows the links.
func TestAnchorsAreUnique(t *testing.T) {
	t.Parallel()
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range all {
		anchors := map[string]bool{}
		for _, heading := range headings(string(page)) {
			if anchors[anchor(heading)] {
				t.Errorf("%s has the anchor #%s twice", name, anchor(heading))
			}
			anchors[anchor(heading)] = true
		}
	}
}

// inCode is code, in which nothing has a meaning for Markdown.
var inCode = regexp.MustCompile("(?s)```.*?\n```|`[^`\n]*`")

// headings are the headings of a page, as text.
func headings(page string) []string {
	var all []string
	for line := range strings.Lines(regexp.MustCompile("(?s)\n```.*?\n```").ReplaceAllString(page, "")) {
		if title := strings.TrimLeft(line, "#"); title != line {
			all = append(all, strings.TrimSpace(title))
		}
	}
	return all
}

// TestPagesAreForReaders: no page has a code of a decision, a placeholder of a template outside of code, or a table that a cell breaks.
func TestPagesAreForReaders(t *testing.T) {
	t.Parallel()
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	decision := regexp.MustCompile(`\([DER]\d+[,)]`)
	for name, page := range all {
		if found := decision.Find(page); found != nil {
			t.Errorf("%s has the code %s, which means nothing to its readers", name, found)
		}
		plain := inCode.ReplaceAllString(string(page), "")
		if strings.Contains(plain, "{{") {
			t.Errorf("%s has {{ outside of code", name)
		}
		columns := 0
		for line := range strings.Lines(plain) {
			cells := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			if strings.HasPrefix(line, "| ---") {
				columns = cells
			} else if strings.HasPrefix(line, "|") && columns > 0 && cells != columns {
				t.Errorf("%s: a row has %d cells in a table of %d: %s", name, cells-1, columns-1, line)
			} else if !strings.HasPrefix(line, "|") {
				columns = 0
			}
		}
	}
}

// TestPagesAreMarkedAsGenerated: forges fold away what .gitattributes calls generated.
func TestPagesAreMarkedAsGenerated(t *testing.T) {
	t.Parallel()
	attributes, err := os.ReadFile(filepath.Join(root, ".gitattributes"))
	if err != nil {
		t.Fatal(err)
	}
	var marked []string
	for line := range strings.Lines(string(attributes)) {
		if pattern, rest, _ := strings.Cut(strings.TrimSpace(line), " "); strings.Contains(rest, "linguist-generated") {
			marked = append(marked, strings.TrimPrefix(pattern, "/"))
		}
	}
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		file := path.Join(Folder, name)
		if !slices.ContainsFunc(marked, func(pattern string) bool {
			folder, all := strings.CutSuffix(pattern, "/**")
			return pattern == file || all && strings.HasPrefix(file, folder+"/")
		}) {
			t.Errorf(".gitattributes does not mark %s as generated", file)
		}
	}
}
