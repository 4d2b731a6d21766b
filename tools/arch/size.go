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

// mostLines is how many lines a source file may have.
const mostLines = 600

// tooLarge returns one line for each package with more source files than that, and for each source file with more lines.
func tooLarge(packages []pkg) ([]string, error) {
	var found []string
	for _, p := range packages {
		written := 0
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, fmt.Errorf("count source files: %w", err)
			}
			if isGenerated(text) {
				continue
			}
			written++
			if lines := bytes.Count(text, []byte("\n")); lines > mostLines {
				found = append(found, fmt.Sprintf("%s/%s: %d lines, at most %d are allowed; split it by what it is about",
					strings.TrimPrefix(p.ImportPath, root), name, lines, mostLines))
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
func isGenerated(text []byte) bool {
	head, _, _ := bytes.Cut(append([]byte("\n"), text...), []byte("\npackage "))
	for line := range bytes.Lines(head) {
		if line = bytes.TrimSpace(line); bytes.HasPrefix(line, []byte("// Code generated ")) && bytes.HasSuffix(line, []byte(" DO NOT EDIT.")) {
			return true
		}
	}
	return false
}
