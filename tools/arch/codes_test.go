package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// reference is a code by which comments and tests name a decision or a requirement, such as those that docs/decisions.md lists.
	reference = regexp.MustCompile(`\b[DER][0-9]{1,2}(?:-[0-9]{2})?\b`)
	// explained is a line of docs/decisions.md.
	explained = regexp.MustCompile(`(?m)^- \*\*([DER][0-9]{1,2}(?:-[0-9]{2})?)\*\* \S`)
	// commented matches the comments of the languages in the repository.
	commented = regexp.MustCompile(`(?s:/\*.*?\*/)|(?m:(?://|--|#) .*$)`)
)

// TestEveryCodeIsExplained: every code in a comment is listed in docs/decisions.md, and every code listed there is used.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "decisions.md"))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, line := range explained.FindAllStringSubmatch(string(text), -1) {
		if _, twice := used[line[1]]; twice {
			t.Errorf("docs/decisions.md explains %s twice", line[1])
		}
		used[line[1]] = false
	}
	tree := os.DirFS(root)
	err = fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base == "node_modules" || base == "dist" || base == "docs" || strings.HasPrefix(base, ".") && base != "." {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".sql", ".star", ".ts", ".tsx", ".mjs", ".sh", ".yaml":
		default:
			return nil
		}
		content, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		for _, c := range commented.FindAllString(string(content), -1) {
			for _, code := range reference.FindAllString(c, -1) {
				if _, known := used[code]; !known {
					t.Errorf("%s: %q names %s, which docs/decisions.md does not explain", path, strings.TrimSpace(c), code)
				}
				used[code] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for code, named := range used {
		if !named {
			t.Errorf("docs/decisions.md explains %s, which nothing names", code)
		}
	}
}
