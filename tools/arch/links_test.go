package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	// fenced is a block of code, and spanned is code within a line: neither has links.
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	spanned = regexp.MustCompile("`[^`\n]*`")
	// linked is a link or an image of Markdown.
	linked = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// heading is a heading of Markdown.
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
)

// forge is where the repository's files are shown, as alerts and charts refer to them.
const forge = "https://github.com/lockstep-cd/lockstep/blob/main/"

// TestLinksResolve follows every link from a page to another file of the repository, and to a heading there.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	pages, followed := 0, 0
	tree := os.DirFS("../..")
	err := fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			name := entry.Name()
			// The introductions of the generated references link as the pages do that they become part of, which are checked.
			if name == "node_modules" || name == "testdata" || name == "bin" || name == "intro" || strings.HasPrefix(name, ".") && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		pages++
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		for _, target := range targets(string(text)) {
			followed++
			if err := resolve(filepath.Join("../..", path), target); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || pages < 20 || followed < 200 {
		t.Errorf("followed %d links of %d pages, %v", followed, pages, err)
	}
}

// TestLinksFromOutsideResolve: alerts and charts link to pages at the forge.
func TestLinksFromOutsideResolve(t *testing.T) {
	t.Parallel()
	followed := 0
	for _, pattern := range []string{"deploy/prometheus/*.yaml", "charts/*/Chart.yaml", "charts/*/files/alerts.yaml"} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, link := range regexp.MustCompile(regexp.QuoteMeta(forge)+`(\S+)`).FindAllStringSubmatch(string(text), -1) {
				followed++
				if err := resolve("../../README.md", link[1]); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
	if followed < 20 {
		t.Errorf("followed %d links", followed)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	const text = "# A page\n\n## Agents' keys, `a.b`: how?\n\n## Twice\n\n## Twice\n\n```\n# no heading\n[no](link)\n```\n" +
		"[there](page.md#twice-1) `[no](link)` ![image](page.md)\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := targets(text); fmt.Sprint(found) != "[page.md#twice-1 page.md]" {
		t.Errorf("found links to %q", found)
	}
	for target, good := range map[string]bool{
		"https://example.com/x": true, "#a-page": true, "#agents-keys-ab-how": true,
		"page.md": true, ".": true, "page.md#twice": true, "page.md#twice-1": true,
		"#no-heading": false, "page.md#twice-2": false, "other.md": false, forge + "README.md": true, forge + "none.md": false,
	} {
		if err := resolve(page, target); (err == nil) != good {
			t.Errorf("%s: found %v; expected that it resolves: %v", target, err, good)
		}
	}
}

// targets returns the targets of a page's links.
func targets(text string) []string {
	text = spanned.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
	var found []string
	for _, link := range linked.FindAllStringSubmatch(text, -1) {
		found = append(found, link[1])
	}
	return found
}

// resolve checks that a link from a page leads to a file of the repository and a heading in it. Other sites are not looked up.
func resolve(page, target string) error {
	file := page
	if ours, found := strings.CutPrefix(target, forge); found {
		page, target = "../../README.md", ours
	}
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	path, anchor, _ := strings.Cut(target, "#")
	if path != "" {
		file = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("found a link to %s; expected a file that exists", target)
	}
	if anchor == "" || filepath.Ext(file) != ".md" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !anchors(string(text))[anchor] {
		return fmt.Errorf("found a link to %s; expected a heading that exists", target)
	}
	return nil
}

// anchors returns the anchors of a page's headings, as forges and the documentation generate them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(h[1], "$1")
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(title))
		unique := name
		for i := 1; found[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", name, i)
		}
		found[unique] = true
	}
	return found
}
