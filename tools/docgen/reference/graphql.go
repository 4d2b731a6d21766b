package reference

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// graphFolder is where the GraphQL schema is, in one file for each noun.
const graphFolder = "services/domain/internal/api/graph/schema"

// graphSources are the files of the GraphQL schema by the name of their noun.
func graphSources(root string) (map[string]*ast.Source, error) {
	names, err := filepath.Glob(filepath.Join(root, graphFolder, "*.graphqls"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("GraphQL schema: found %d files in %s, %w; expected some", len(names), graphFolder, err)
	}
	sources := map[string]*ast.Source{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read GraphQL schema: %w", err)
		}
		noun := strings.TrimSuffix(filepath.Base(name), ".graphqls")
		sources[noun] = &ast.Source{Name: noun, Input: string(text)}
	}
	return sources, nil
}

// graphSchema is the whole GraphQL schema. Each definition knows the noun in whose file it is.
func graphSchema(root string) (*ast.Schema, error) {
	sources, err := graphSources(root)
	if err != nil {
		return nil, err
	}
	all := make([]*ast.Source, 0, len(sources))
	for _, source := range sources {
		all = append(all, source)
	}
	slices.SortFunc(all, func(a, b *ast.Source) int { return cmp.Compare(a.Name, b.Name) })
	schema, err := gqlparser.LoadSchema(all...)
	if err != nil {
		return nil, fmt.Errorf("GraphQL schema: %w", err)
	}
	return schema, nil
}

// graph is an overview of the GraphQL API, and one page for each noun.
func graph(root string) ([]*page, error) {
	sources, err := graphSources(root)
	if err != nil {
		return nil, err
	}
	schema, err := graphSchema(root)
	if err != nil {
		return nil, err
	}
	overview, err := newPage("graphql.md", graphFolder)
	if err != nil {
		return nil, err
	}
	pages := []*page{overview}
	var nouns, operations [][]string
	for _, noun := range sortedKeys(sources) {
		name, description, err := headOf(sources[noun])
		if err != nil {
			return nil, err
		}
		nouns = append(nouns, []string{fmt.Sprintf("[%s](graphql/%s.md)", name, noun), prose(description)})
		p := barePage("graphql/"+noun+".md", "GraphQL: "+name, description, graphFolder+"/"+noun+".graphqls")
		writeNoun(p, schema, noun)
		pages = append(pages, p)
	}
	for _, root := range roots(schema) {
		for _, field := range root.fields {
			operations = append(operations, []string{
				fmt.Sprintf("[%s](graphql/%s.md#%s)", field.Name, field.Position.Src.Name, anchor(root.word+" "+field.Name)), root.word,
				prose(firstSentence(field.Description)),
			})
		}
	}
	overview.heading(2, "Nouns")
	overview.table([]string{"Noun", "Contents"}, nouns)
	overview.heading(2, "Operations")
	overview.table([]string{"Field", "Kind", "Purpose"}, operations)
	return pages, nil
}

// headOf is the title and the description of a file of the schema, which its first comment gives as "title: description".
func headOf(source *ast.Source) (name, description string, err error) {
	var lines []string
	for line := range strings.Lines(source.Input) {
		text, isComment := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !isComment {
			break
		}
		lines = append(lines, strings.TrimSpace(text))
	}
	name, description, found := strings.Cut(strings.Join(lines, " "), ": ")
	if !found {
		return "", "", fmt.Errorf("%s/%s.graphqls: found no comment in the first line; expected one such as \"# Agents: the relays beside clusters\"", graphFolder, source.Name)
	}
	return name, description, nil
}

// operation is a kind of operations with its fields.
type operation struct {
	word   string
	fields []*ast.FieldDefinition
}

// roots are the queries, mutations and subscriptions, without those of introspection.
func roots(schema *ast.Schema) []operation {
	all := []operation{{"Query", nil}, {"Mutation", nil}, {"Subscription", nil}}
	for i, definition := range []*ast.Definition{schema.Query, schema.Mutation, schema.Subscription} {
		if definition == nil {
			continue
		}
		for _, field := range definition.Fields {
			if !strings.HasPrefix(field.Name, "__") {
				all[i].fields = append(all[i].fields, field)
			}
		}
	}
	return all
}

// writeNoun has the operations and the types of one file of the schema, in its order.
func writeNoun(p *page, schema *ast.Schema, noun string) {
	for _, root := range roots(schema) {
		for _, field := range root.fields {
			if field.Position.Src.Name != noun {
				continue
			}
			p.heading(2, root.word+" "+field.Name)
			p.paragraph(prose(joined(field.Description)))
			p.code("graphql", signature(field))
			p.arguments(argumentRows(schema, field.Arguments))
			p.paragraph("Returns " + typeLink(schema, field.Type) + ".")
		}
	}
	var types []*ast.Definition
	for _, definition := range schema.Types {
		if definition.Position != nil && definition.Position.Src != nil && definition.Position.Src.Name == noun && !isRoot(schema, definition) {
			types = append(types, definition)
		}
	}
	slices.SortFunc(types, func(a, b *ast.Definition) int { return cmp.Compare(a.Position.Start, b.Position.Start) })
	for _, definition := range types {
		writeType(p, schema, definition)
	}
}

func isRoot(schema *ast.Schema, definition *ast.Definition) bool {
	return definition == schema.Query || definition == schema.Mutation || definition == schema.Subscription
}

func writeType(p *page, schema *ast.Schema, definition *ast.Definition) {
	p.heading(2, definition.Name)
	kind := map[ast.DefinitionKind]string{
		ast.Scalar: "Scalar", ast.Object: "Type", ast.Interface: "Interface", ast.Union: "Union", ast.Enum: "Enum", ast.InputObject: "Input",
	}[definition.Kind]
	for _, name := range definition.Interfaces {
		kind += ", implements [" + name + "](" + schema.Types[name].Position.Src.Name + ".md#" + anchor(name) + ")"
	}
	p.paragraph("*" + kind + ".* " + prose(joined(definition.Description)))
	if definition.Kind == ast.Enum {
		var rows [][]string
		for _, value := range definition.EnumValues {
			rows = append(rows, []string{code(value.Name), prose(joined(value.Description))})
		}
		p.table([]string{"Value", "Meaning"}, rows)
		return
	}
	var rows [][]string
	for _, field := range definition.Fields {
		if strings.HasPrefix(field.Name, "__") {
			continue
		}
		name := field.Name
		if len(field.Arguments) > 0 {
			name = strings.TrimSuffix(signature(field), ": "+field.Type.String())
		}
		meaning := prose(joined(field.Description))
		if field.DefaultValue != nil {
			meaning = strings.TrimSpace(meaning + " Default: " + code(field.DefaultValue.String()) + ".")
		}
		rows = append(rows, []string{code(name), typeLink(schema, field.Type), meaning})
	}
	p.table([]string{"Field", "Type", "Meaning"}, rows)
}

// signature is a field as the schema has it, without descriptions.
func signature(field *ast.FieldDefinition) string {
	var arguments []string
	for _, a := range field.Arguments {
		text := a.Name + ": " + a.Type.String()
		if a.DefaultValue != nil {
			text += " = " + a.DefaultValue.String()
		}
		arguments = append(arguments, text)
	}
	list := ""
	if len(arguments) > 0 {
		list = "(" + strings.Join(arguments, ", ") + ")"
	}
	return field.Name + list + ": " + field.Type.String()
}

// argumentRows are the arguments of a field, but for those of paging.
func argumentRows(schema *ast.Schema, arguments ast.ArgumentDefinitionList) [][]string {
	var rows [][]string
	for _, a := range arguments {
		if slices.Contains([]string{"first", "after", "last", "before"}, a.Name) {
			continue
		}
		rows = append(rows, []string{code(a.Name), typeLink(schema, a.Type), prose(joined(a.Description))})
	}
	return rows
}

// arguments adds the table of arguments, without the column of meanings if none has one: an input has a section of its own.
func (p *page) arguments(rows [][]string) {
	header := []string{"Argument", "Type", "Meaning"}
	if !slices.ContainsFunc(rows, func(row []string) bool { return row[2] != "" }) {
		header = header[:2]
		for i := range rows {
			rows[i] = rows[i][:2]
		}
	}
	p.table(header, rows)
}

// typeLink is a type with a link to where it is described. Scalars of GraphQL itself have none.
func typeLink(schema *ast.Schema, t *ast.Type) string {
	name := t.Name()
	definition := schema.Types[name]
	if definition == nil || definition.BuiltIn || definition.Position == nil || definition.Position.Src == nil ||
		definition.Position.Src.BuiltIn {
		return code(t.String())
	}
	before, after, _ := strings.Cut(t.String(), name)
	return escape(before) + "[" + name + "](" + definition.Position.Src.Name + ".md#" + anchor(name) + ")" + escape(after)
}

// escape keeps brackets from being read as a link.
func escape(text string) string { return strings.NewReplacer("[", `\[`, "]", `\]`).Replace(text) }

// joined is a description in one line.
func joined(description string) string { return strings.Join(strings.Fields(description), " ") }

// firstSentence is a text up to its first full stop.
func firstSentence(text string) string {
	text = joined(text)
	if head, _, found := strings.Cut(text, ". "); found {
		return head + "."
	}
	return text
}
