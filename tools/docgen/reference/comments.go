package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// module is the path in front of all our packages.
const module = "github.com/lockstep-cd/lockstep/"

// comments finds the comments of Go types in the source.
type comments struct {
	root     string
	packages map[string]map[string]typeComments
}

// typeComments are the comment of a type and, for a struct, those of its fields by name. A field that follows
// others without a blank line shares their comment if that mentions it.
type typeComments struct {
	doc    string
	fields map[string]string
}

func newComments(root string) *comments {
	return &comments{root: root, packages: map[string]map[string]typeComments{}}
}

// field is the comment of a field. A field without one is an error: nobody dares to set what nobody explains.
func (c *comments) field(t reflect.Type, name string) (string, error) {
	of, err := c.of(t)
	if err != nil {
		return "", err
	}
	text := of.fields[name]
	if text == "" {
		return "", fmt.Errorf("%s.%s.%s: found no comment; expected what it means", t.PkgPath(), t.Name(), name)
	}
	return text, nil
}

// of are the comments of a type.
func (c *comments) of(t reflect.Type) (typeComments, error) {
	types, ok := c.packages[t.PkgPath()]
	if !ok {
		var err error
		if types, err = c.read(t.PkgPath()); err != nil {
			return typeComments{}, err
		}
		c.packages[t.PkgPath()] = types
	}
	found, ok := types[t.Name()]
	if !ok {
		return typeComments{}, fmt.Errorf("%s: found no type %s", t.PkgPath(), t.Name())
	}
	return found, nil
}

// read are the comments of all types of a package of ours.
func (c *comments) read(path string) (map[string]typeComments, error) {
	relative, ours := strings.CutPrefix(path, module)
	if !ours {
		return nil, fmt.Errorf("%s: is no package of ours, so that its comments cannot be read", path)
	}
	names, err := filepath.Glob(filepath.Join(c.root, relative, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	types := map[string]typeComments{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if one, ok := spec.(*ast.TypeSpec); ok {
					types[one.Name.Name] = commentsOf(set, general, one)
				}
			}
		}
	}
	return types, nil
}

func commentsOf(set *token.FileSet, declaration *ast.GenDecl, spec *ast.TypeSpec) typeComments {
	found := typeComments{doc: oneLine(spec.Doc), fields: map[string]string{}}
	if found.doc == "" {
		found.doc = oneLine(declaration.Doc)
	}
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return found
	}
	shared, end := "", 0
	for _, f := range structure.Fields.List {
		doc := oneLine(f.Doc)
		if doc == "" && f.Comment != nil {
			doc = oneLine(f.Comment)
		}
		if doc == "" && set.Position(f.Pos()).Line == end+1 && len(f.Names) == 1 && mentions(shared, f.Names[0].Name) {
			doc = shared
		} else if doc != "" {
			shared = doc
		}
		end = set.Position(f.End()).Line
		for _, name := range f.Names {
			found.fields[name.Name] = doc
		}
		if len(f.Names) == 0 {
			if name, ok := f.Type.(*ast.Ident); ok {
				found.fields[name.Name] = doc
			}
		}
	}
	return found
}

// mentions reports whether a text has a word.
func mentions(text, word string) bool { return slices.Contains(goName.FindAllString(text, -1), word) }

// oneLine is a comment with its paragraphs as lines.
func oneLine(group *ast.CommentGroup) string {
	if group == nil {
		return ""
	}
	paragraphs := strings.Split(strings.TrimSpace(group.Text()), "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(p), " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

// withNames replaces the names of the fields of a struct in a comment by those that users know, as code. A name of one word is taken for
// one only where it does not begin a sentence, as every word does with a capital letter there, or where it begins the whole text.
func withNames(text string, of reflect.Type, nameOf func(reflect.StructField) string) string {
	var out strings.Builder
	end := 0
	for _, at := range goName.FindAllStringIndex(text, -1) {
		f, known := of.FieldByName(text[at[0]:at[1]])
		name := ""
		if known {
			name = nameOf(f)
		}
		begins := at[0] > 0 && slices.Contains([]string{". ", ": ", "\n\n"}, text[max(0, at[0]-2):at[0]])
		if name == "" || begins && !strings.ContainsFunc(f.Name[1:], unicode.IsUpper) {
			continue
		}
		out.WriteString(text[end:at[0]] + "`" + name + "`")
		end = at[1]
	}
	return out.String() + text[end:]
}

var goName = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)
