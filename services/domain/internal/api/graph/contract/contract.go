// Package contract reports which changes of a GraphQL schema break its clients. It judges nothing else: whether a new field is a good one
// is for reviewers.
package contract

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// Load parses all .graphqls files in a folder and its subfolders as one schema.
func Load(folder string) (*ast.Schema, error) {
	var sources []*ast.Source
	files := os.DirFS(folder)
	err := fs.WalkDir(files, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".graphqls" {
			return err
		}
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		sources = append(sources, &ast.Source{Name: filepath.Join(folder, file), Input: string(text)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("read schema: found no .graphqls file in %s", folder)
	}
	schema, err := gqlparser.LoadSchema(sources...)
	if err != nil {
		return nil, fmt.Errorf("parse schema: %w", err)
	}
	return schema, nil
}

// Breaking lists what clients of the old schema can no longer rely on, one line each, in alphabetical order of the types. What was
// deprecated in the old schema may be removed.
func Breaking(old, now *ast.Schema) []string {
	var c comparison
	for _, name := range slices.Sorted(maps.Keys(old.Types)) {
		if !old.Types[name].BuiltIn {
			c.definition(old.Types[name], now.Types[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Directives)) {
		c.directive(old.Directives[name], now.Directives[name])
	}
	return c.found
}

// comparison collects what breaks.
type comparison struct{ found []string }

func (c *comparison) breaks(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *comparison) definition(old, now *ast.Definition) {
	switch {
	case now == nil:
		c.breaks("%s %s is gone", strings.ToLower(string(old.Kind)), old.Name)
		return
	case now.Kind != old.Kind:
		c.breaks("%s was %s and is %s", old.Name, strings.ToLower(string(old.Kind)), strings.ToLower(string(now.Kind)))
		return
	}
	for _, i := range old.Interfaces {
		if !slices.Contains(now.Interfaces, i) {
			c.breaks("%s no longer implements %s", old.Name, i)
		}
	}
	for _, t := range old.Types {
		if !slices.Contains(now.Types, t) {
			c.breaks("union %s no longer has %s", old.Name, t)
		}
	}
	for _, v := range old.EnumValues {
		if now.EnumValues.ForName(v.Name) == nil && v.Directives.ForName("deprecated") == nil {
			c.breaks("enum %s no longer has %s", old.Name, v.Name)
		}
	}
	if old.Kind == ast.InputObject {
		c.inputs(old.Name, inputFields(old), inputFields(now))
		return
	}
	for _, f := range old.Fields {
		c.field(old.Name, f, now.Fields.ForName(f.Name))
	}
}

func (c *comparison) field(of string, old, now *ast.FieldDefinition) {
	at := of + "." + old.Name
	if now == nil {
		if old.Directives.ForName("deprecated") == nil {
			c.breaks("%s is gone, and was not deprecated", at)
		}
		return
	}
	if !serves(now.Type, old.Type) {
		c.breaks("%s was %s and is %s", at, old.Type, now.Type)
	}
	c.inputs(at, arguments(old.Arguments), arguments(now.Arguments))
}

func (c *comparison) directive(old, now *ast.DirectiveDefinition) {
	if now == nil {
		c.breaks("directive @%s is gone", old.Name)
		return
	}
	for _, l := range old.Locations {
		if !slices.Contains(now.Locations, l) {
			c.breaks("directive @%s may no longer be at %s", old.Name, l)
		}
	}
	c.inputs("@"+old.Name, arguments(old.Arguments), arguments(now.Arguments))
}

// input is what a client gives: an argument, or a field of an input.
type input struct {
	name       string
	kind       *ast.Type
	optional   bool
	deprecated bool
}

func inputFields(d *ast.Definition) []input {
	all := make([]input, len(d.Fields))
	for i, f := range d.Fields {
		all[i] = input{f.Name, f.Type, !f.Type.NonNull || f.DefaultValue != nil, f.Directives.ForName("deprecated") != nil}
	}
	return all
}

func arguments(list ast.ArgumentDefinitionList) []input {
	all := make([]input, len(list))
	for i, a := range list {
		all[i] = input{a.Name, a.Type, !a.Type.NonNull || a.DefaultValue != nil, a.Directives.ForName("deprecated") != nil}
	}
	return all
}

// inputs compares what clients give: what they gave before has to be taken still, and nothing else may be required.
func (c *comparison) inputs(at string, old, now []input) {
	find := func(all []input, name string) int {
		return slices.IndexFunc(all, func(i input) bool { return i.name == name })
	}
	for _, o := range old {
		i := find(now, o.name)
		switch {
		case i < 0 && !o.deprecated:
			c.breaks("%s no longer takes %s, which was not deprecated", at, o.name)
		case i >= 0 && !takes(now[i], o):
			c.breaks("%s took %s: %s and takes %s", at, o.name, o.kind, now[i].kind)
		}
	}
	for _, n := range now {
		if find(old, n.name) < 0 && !n.optional {
			c.breaks("%s now requires %s: %s", at, n.name, n.kind)
		}
	}
}

// serves reports whether a result of one type can stand for another: it may promise more.
func serves(now, old *ast.Type) bool {
	switch {
	case old.NonNull && !now.NonNull, (now.Elem == nil) != (old.Elem == nil):
		return false
	case old.Elem != nil:
		return serves(now.Elem, old.Elem)
	}
	return now.NamedType == old.NamedType
}

// takes reports whether everything that could be given before can be given still.
func takes(now, old input) bool {
	if old.optional && !now.optional {
		return false
	}
	return accepts(now.kind, old.kind)
}

// accepts reports whether every value of one type is one of another.
func accepts(now, old *ast.Type) bool {
	switch {
	case now.NonNull && !old.NonNull, (now.Elem == nil) != (old.Elem == nil):
		return false
	case old.Elem != nil:
		return accepts(now.Elem, old.Elem)
	}
	return now.NamedType == old.NamedType
}
