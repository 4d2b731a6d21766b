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
	// elsewhere is a reference to a report that is not in the repository: "finding C13", or a code in parentheses other than those above.
	elsewhere = regexp.MustCompile(`\b(?:[Ff]inding|[Hh]ole)s? [A-Z][0-9]{1,2}\b|\((?:[^()]*[ ,])?[A-CF-QS-Z][0-9]{1,2}[,)]`)
	// crashPoint is a row of services/workflow/crashpoints.md, which that service's tests name.
	crashPoint = regexp.MustCompile(`\(C[0-9]{1,2}\)`)
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
	eachComment(t, root, func(path, comment string) {
		for _, code := range reference.FindAllString(comment, -1) {
			if _, known := used[code]; !known {
				t.Errorf("%s: %q names %s, which docs/decisions.md does not explain", path, strings.TrimSpace(comment), code)
			}
			used[code] = true
		}
	})
	for code, named := range used {
		if !named {
			t.Errorf("docs/decisions.md explains %s, which nothing names", code)
		}
	}
}

// TestNoReferenceToWhatIsElsewhere: a comment refers to nothing that a reader of the repository cannot find.
func TestNoReferenceToWhatIsElsewhere(t *testing.T) {
	t.Parallel()
	eachComment(t, filepath.Join("..", ".."), func(path, comment string) {
		if path == "tools/arch/codes_test.go" {
			return
		}
		if strings.HasPrefix(path, "services/workflow/") {
			comment = crashPoint.ReplaceAllString(comment, "")
		}
		if found := elsewhere.FindString(comment); found != "" {
			t.Errorf("%s: found %q in %q; expected a sentence that says it: the report is not in the repository", path, found, strings.TrimSpace(comment))
		}
	})
	for text, want := range map[string]bool{
		"// works (finding C13).": true, "// findings A3 and A4": true, "// the naive matching (B6).": true, "// once (D47, P1)": true,
		"// hole P2 allowed it": true, "// as decided (D47)": false, "// C0, DEL and C1": false, "// Median and P90": false, "// a hole in it": false,
	} {
		if elsewhere.MatchString(text) != want {
			t.Errorf("%q: a reference is found: %t", text, !want)
		}
	}
}

// eachComment calls fn for every comment of the repository's sources, with the path of its file.
func eachComment(t *testing.T, root string, fn func(path, comment string)) {
	t.Helper()
	tree, files := os.DirFS(root), 0
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
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
		files++
		for _, comment := range commented.FindAllString(string(content), -1) {
			fn(path, comment)
		}
		return nil
	})
	if err != nil || files < 300 {
		t.Fatalf("read %d files, %v", files, err)
	}
}
