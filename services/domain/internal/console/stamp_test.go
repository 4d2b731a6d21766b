package console

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

// stamped are the files and folders that a build depends on; ui/scripts/build.mjs has the same list.
func stamped() []string {
	return []string{"index.html", "package-lock.json", "package.json", "public", "src", "tsconfig.json", "vite.config.ts"}
}

// TestDistIsTheBuildOfTheSource compares the hash of the source with the one that the build has written down.
func TestDistIsTheBuildOfTheSource(t *testing.T) {
	t.Parallel()
	ui := os.DirFS("ui")
	var names []string
	for _, start := range stamped() {
		err := fs.WalkDir(ui, start, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		content, err := fs.ReadFile(ui, name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(all, "%s %x\n", name, sha256.Sum256(content))
	}
	want := hex.EncodeToString(all.Sum(nil))
	found, err := os.ReadFile("dist/stamp.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(found)); got != want {
		t.Errorf("dist was built from other sources: its stamp is %s, ui has %s; run `make console` and commit dist", got, want)
	}
}

func TestNoSourceMapAndNothingInline(t *testing.T) {
	t.Parallel()
	err := fs.WalkDir(dist, "dist", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".map") {
			t.Errorf("%s: found a source map; expected none", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := dist.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, inline := range []string{"<script>", "<style", " style=", " onclick=", "http://", "https://"} {
		if strings.Contains(string(page), inline) {
			t.Errorf("index.html: found %q, which the content security policy refuses", inline)
		}
	}
}
