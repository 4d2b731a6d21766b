// Command arch checks who imports whom: the table in table.go against every package of the workspace.
//
// It judges direct imports, because those are what a reader sees and an author decides. It does not judge what a third
// party imports, and another service's internals need no rule: the compiler refuses them.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	packages, err := list()
	if err != nil {
		fmt.Fprintln(os.Stderr, "arch:", err)
		os.Exit(2)
	}
	violations := check(packages)
	for _, v := range violations {
		fmt.Fprintln(os.Stderr, v)
	}
	if len(violations) > 0 {
		fmt.Fprintf(os.Stderr, "arch: %d forbidden imports or names in %d packages; the table is tools/arch/table.go\n",
			len(violations), len(packages))
		os.Exit(1)
	}
}

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath   string
	Name         string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// list asks the go command for every package of the workspace; -e, because what does not build is for others to say.
func list() ([]pkg, error) {
	//nolint:noctx // one short command, ended by the terminal's interrupt like this process itself
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Imports,TestImports,XTestImports", "work")
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
