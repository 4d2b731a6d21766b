// Command arch checks who imports whom, by the table in table.go, and the language that everything is written in, by the list in words.go.
//
// It judges direct imports, because those are what a reader sees and an author decides. It does not judge what a third
// party imports, and another service's internals need no rule: the compiler refuses them. A package has at most 30 source files.
//
// Words that only insiders understand are counted per folder. tools/arch/words.txt holds the counts; they may only shrink.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	list := flag.String("words", "", "list the words in this folder and below that a stranger would not use")
	rewrite := flag.Bool("count", false, "write into "+allowed+" how many of them are left; it refuses more than before")
	flag.Parse()
	if err := run(*list, *rewrite); err != nil {
		fmt.Fprintln(os.Stderr, "arch:", err)
		os.Exit(1)
	}
}

// run does what the flags ask for; without any it checks imports, names and words.
func run(folder string, rewrite bool) error {
	switch {
	case rewrite:
		return writeCounts()
	case folder != "":
		return listWords(os.Stdout, folder)
	}
	packages, err := list()
	if err != nil {
		return err
	}
	violations := check(packages)
	large, err := tooLarge(packages)
	if err != nil {
		return err
	}
	violations = append(violations, large...)
	for _, v := range violations {
		fmt.Fprintln(os.Stderr, v)
	}
	words, err := checkWords()
	if err != nil {
		return err
	}
	for _, w := range words {
		fmt.Fprintln(os.Stderr, w)
	}
	switch {
	case len(violations) > 0:
		return fmt.Errorf("%d forbidden imports, names or sizes in %d packages; the table is tools/arch/table.go", len(violations), len(packages))
	case len(words) > 0:
		return fmt.Errorf("%d folders differ from %s; CONTRIBUTING.md, Language, has the list", len(words), allowed)
	}
	return nil
}

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath   string
	Name         string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// list returns every package of the workspace; -e, because broken packages are reported elsewhere.
func list() ([]pkg, error) {
	//nolint:noctx // one short command, ended by the terminal's interrupt like this process itself
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Dir,GoFiles,Imports,TestImports,XTestImports", "work")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list work: %w: %s", err, stderr.Bytes())
	}
	return decode(bytes.NewReader(out))
}

func decode(r io.Reader) ([]pkg, error) {
	var packages []pkg
	for d := json.NewDecoder(r); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode the output of go list: %w", err)
		}
		packages = append(packages, p)
	}
}
