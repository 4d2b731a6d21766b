package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// code is a reference to a document that users do not have: (R42), (E52, E53), (decision D17), also next to other words.
var code = regexp.MustCompile(`\((?:[^()]*[ ,])?[RED][0-9]{1,3}(?:-[0-9]+)?(?:[ ,][^()]*)?\)`)

// texts are the files that are shown to users unchanged: contracts, schemas, charts and documentation. Of Go files only the strings are
// checked; their comments are internal.
var texts = []string{
	"*.md", "*.graphqls", "*.proto", "charts/*.yaml", "charts/*.json", "charts/*.txt", "charts/*.tpl", "pkg/*.json", "services/*/config.go",
	"services/*/hookconfig.go",
}

// TestNoReferenceToWhatUsersDoNotHave checks everything that users see (D20 of the CLI and console).
func TestNoReferenceToWhatUsersDoNotHave(t *testing.T) {
	t.Parallel()
	root, files := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() {
			if base := d.Name(); base == "node_modules" || base == "dist" || base == "testdata" || strings.HasPrefix(base, ".") && base != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		shown, err := shownTo(name, path)
		if err != nil || shown == "" {
			return err
		}
		files++
		for _, found := range code.FindAllString(shown, -1) {
			t.Errorf("%s: found %s; expected a sentence that says it, since users have no document that explains it", name, found)
		}
		return nil
	})
	if err != nil || files < 300 {
		t.Fatalf("read %d files, %v", files, err)
	}
}

// shownTo returns what users see of a file; "" for nothing.
func shownTo(name, path string) (string, error) {
	read := func() (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}
	for _, pattern := range texts {
		folder, last := "", pattern
		if i := strings.LastIndexByte(pattern, '/'); i >= 0 {
			folder, last = pattern[:i], pattern[i+1:]
		}
		base, _ := filepath.Match(last, filepath.Base(name))
		if within, _ := filepath.Match(folder, filepath.ToSlash(filepath.Dir(name))); base &&
			(folder == "" || within || !strings.Contains(folder, "*") && strings.HasPrefix(name, folder+"/")) {
			return read()
		}
	}
	switch {
	case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
		return stringsOf(path)
	case strings.HasPrefix(name, "services/domain/internal/console/ui/src/") &&
		(strings.HasSuffix(name, ".tsx") || strings.HasSuffix(name, ".ts")):
		text, err := read()
		return withoutComments(text), err
	}
	return "", nil
}

// stringsOf returns the strings in a Go file, one per line.
func stringsOf(path string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		// sqlc's queries have comments for us
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && !strings.Contains(l.Value, "-- name:") {
			b.WriteString(l.Value + "\n")
		}
		return true
	})
	return b.String(), nil
}

var comment = regexp.MustCompile(`(?s)/\*.*?\*/|(?m)^\s*//.*$`)

func withoutComments(text string) string { return comment.ReplaceAllString(text, "") }

func TestCodesAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"all or nothing (E52).": true, "setup (E33, E54)": true, "(decisions D4, D5)": true, "(see D17 there)": true, "(R3-29 to R3-48)": true,
		"(R)": false, "E2E (end to end)": false, "a name (A100 or so)": false, "R42": false, "(HTTP2)": false,
	} {
		if code.MatchString(text) != want {
			t.Errorf("%q: a code is found: %t", text, !want)
		}
	}
	if got := withoutComments("a /* (R1) */ b\n  // (R2)\nc"); strings.Contains(got, "R1") || strings.Contains(got, "R2") {
		t.Errorf("comments stay: %q", got)
	}
}
