package model_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// model is a file with what it says behind @.
type model struct {
	name, path, source string
	tags               []tag
}

// tag is one of those words: mutant, spare and deep name a variant; go, calls, sql and text are about the code.
type tag struct {
	what string
	// name is that of a variant, kind how a mutant fails.
	name, kind string
	// place is a package or a file, in a service or in pkg; rest all behind it.
	place, rest string
}

func (m model) tagged(what ...string) []tag {
	return slices.DeleteFunc(slices.Clone(m.tags), func(g tag) bool { return !slices.Contains(what, g.what) })
}

// models reads the files of this folder.
func models(t *testing.T) []model {
	t.Helper()
	paths, err := filepath.Glob("*.pml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d models, error %v", len(paths), err)
	}
	var all []model
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := model{name: strings.TrimSuffix(path, ".pml"), source: string(source)}
		if m.path, err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`@(\w+) ([^\n]*)`).FindAllStringSubmatch(m.source, -1) {
			rest := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line[2]), "*/"))
			g := tag{what: line[1]}
			switch g.what {
			case "mutant", "spare", "deep":
				name, _, _ := strings.Cut(rest, ":")
				g.name, g.kind, _ = strings.Cut(name, " ")
			case "go", "calls", "sql", "text":
				g.place, g.rest, _ = strings.Cut(rest, " ")
			default:
				t.Errorf("%s: unknown word @%s", path, g.what)
			}
			m.tags = append(m.tags, g)
		}
		all = append(all, m)
	}
	return all
}

// folder is where a package or a file that a model names is: in this service, in pkg, or in the domain service.
func folder(place string) string {
	switch {
	case strings.HasPrefix(place, "pkg/"):
		return filepath.Join("..", "..", "..", "..", place)
	case strings.HasPrefix(place, "domain/"):
		return filepath.Join("..", "..", "..", place)
	}
	return filepath.Join("..", "..", place)
}

// TestModelsNameTheCode checks the tags of the models against the code: the functions and statements exist, the statements contain the
// text that a model relies on, and the functions call one another in its order. Renaming or reordering one fails here, so that its model
// is reviewed.
func TestModelsNameTheCode(t *testing.T) {
	t.Parallel()
	functions, statements := map[string]map[string]function{}, map[string]map[string]string{}
	for _, m := range models(t) {
		about := m.tagged("go", "calls", "sql", "text")
		if len(about) < 10 {
			t.Errorf("%s names %d places of the code, expected at least 10", m.name, len(about))
		}
		for _, g := range about {
			if functions[g.place] == nil && g.what != "text" {
				functions[g.place], statements[g.place] = functionsOf(t, g.place), statementsOf(t, g.place)
			}
			name, words, _ := strings.Cut(g.rest, ": ")
			switch g.what {
			case "go", "calls":
				f, known := functions[g.place][name]
				if !known {
					t.Errorf("%s: %s has no function %s", m.name, g.place, name)
				} else if at := f.without(strings.Fields(words)); g.what == "calls" && at != "" {
					t.Errorf("%s: %s %s: found no call of %s in its place, expected the order %s", m.name, g.place, name, at, words)
				}
			case "sql":
				text, known := statements[g.place][name]
				if !known {
					t.Errorf("%s: %s has no statement %s", m.name, g.place, name)
				} else if !strings.Contains(text, words) {
					t.Errorf("%s: %s: found no %q in statement %s", m.name, g.place, words, name)
				}
			case "text":
				text, err := os.ReadFile(folder(g.place))
				if err != nil || !strings.Contains(string(text), g.rest) {
					t.Errorf("%s: found no %q in %s: %v", m.name, g.rest, g.place, err)
				}
			}
		}
	}
}

// TestVariantsAreDeclared has every variant that a model has code for be one that is searched, and the other way round.
func TestVariantsAreDeclared(t *testing.T) {
	t.Parallel()
	for _, m := range models(t) {
		coded := map[string]bool{}
		for _, line := range regexp.MustCompile(`(?m)^#(?:ifdef|ifndef|if) (.*)$`).FindAllStringSubmatch(m.source, -1) {
			for _, name := range regexp.MustCompile(`[A-Z][A-Z_]+`).FindAllString(line[1], -1) {
				coded[name] = true
			}
		}
		for _, g := range m.tagged("mutant", "spare", "deep") {
			if !coded[g.name] {
				t.Errorf("%s: %s is declared and changes nothing", m.name, g.name)
			}
			delete(coded, g.name)
		}
		for name := range coded {
			t.Errorf("%s: %s changes something and is not declared", m.name, name)
		}
	}
}

// function is the names that a function calls, in the order of its text.
type function []string

// without answers the first of names that is not called behind the one before it; "" if all are.
func (f function) without(names []string) string {
	for _, name := range names {
		at := slices.Index(f, name)
		if at < 0 {
			return name
		}
		f = f[at+1:]
	}
	return ""
}

// functionsOf are the functions of a package, methods as Type.method.
func functionsOf(t *testing.T, place string) map[string]function {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder(place), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]function{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all[receiver(f)+f.Name.Name] = calls(f)
			}
		}
	}
	return all
}

// receiver is "Type." of a method.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

// calls are what a function calls, each by its last name.
func calls(f *ast.FuncDecl) function {
	type call struct {
		at   token.Pos
		name string
	}
	var all []call
	ast.Inspect(f, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fn := c.Fun.(type) {
		case *ast.Ident:
			all = append(all, call{fn.Pos(), fn.Name})
		case *ast.SelectorExpr:
			all = append(all, call{fn.Sel.Pos(), fn.Sel.Name})
		}
		return true
	})
	slices.SortFunc(all, func(a, b call) int { return int(a.at - b.at) })
	names := make(function, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	return names
}

// statementsOf are the statements of a package's folder of queries by name, their white space made single.
func statementsOf(t *testing.T, place string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder(place), "queries", "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(source), "-- name: ") {
			if i == 0 {
				continue
			}
			name, text, _ := strings.Cut(part, " :")
			all[name] = strings.Join(strings.Fields(text), " ")
		}
	}
	return all
}
