package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mostFiles is how many source files a package may have, tests and generated files not counted: what a newcomer can take in at a
// glance at the folder.
const mostFiles = 30

// tooLarge returns one line for each package with more source files than that.
func tooLarge(packages []pkg) ([]string, error) {
	var found []string
	for _, p := range packages {
		written := 0
		for _, name := range p.GoFiles {
			generated, err := isGenerated(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			if !generated {
				written++
			}
		}
		if written > mostFiles {
			found = append(found, fmt.Sprintf("%s: %d source files, at most %d are allowed; split it into packages by noun",
				strings.TrimPrefix(p.ImportPath, root), written, mostFiles))
		}
	}
	return found, nil
}

// isGenerated reports whether a file begins with the line by which Go recognizes generated code.
func isGenerated(file string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("count source files: %w", err)
	}
	head, _, _ := bytes.Cut(append([]byte("\n"), text...), []byte("\npackage "))
	for line := range bytes.Lines(head) {
		if line = bytes.TrimSpace(line); bytes.HasPrefix(line, []byte("// Code generated ")) && bytes.HasSuffix(line, []byte(" DO NOT EDIT.")) {
			return true, nil
		}
	}
	return false, nil
}
