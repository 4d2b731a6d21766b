package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThePictureIsTrue: README and the page about the architecture have one picture, and it has each service, each stream and the requests
// beside the streams, as the code has them.
func TestThePictureIsTrue(t *testing.T) {
	t.Parallel()
	var pictures []string
	for _, page := range []string{"README.md", "docs/explanation/architecture.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fenced.FindAllString(string(text), -1) {
			if strings.Contains(block, "┌") {
				pictures = append(pictures, block)
				break
			}
		}
	}
	if len(pictures) != 2 || pictures[0] != pictures[1] {
		t.Fatalf("found %d pictures, or different ones; expected the same in both pages", len(pictures))
	}
	labels := strings.Fields(strings.Map(func(r rune) rune {
		if strings.ContainsRune("│┌┐└┘─┬┴├┤▶◀▼,", r) {
			return ' '
		}
		return r
	}, pictures[0]))
	in := map[string]bool{}
	for _, label := range labels {
		in[label] = true
	}
	services, err := filepath.Glob("../../services/*/cmd")
	if err != nil || len(services) == 0 {
		t.Fatal("no services", err)
	}
	for _, service := range services {
		if name := filepath.Base(filepath.Dir(service)); !in[name] {
			t.Errorf("the picture lacks the service %s", name)
		}
	}
	// Calls to agents have a stream of their own beside their answers: one arrow.
	for file, names := range map[string]*regexp.Regexp{
		"streams.go":     regexp.MustCompile(`Stream\w+\s+= "([A-Z]+)(?:_CALLS)?"`),
		"permissions.go": regexp.MustCompile(`"(cd\.sources)\.`),
	} {
		text, err := os.ReadFile(filepath.Join("../../pkg/bus", file))
		if err != nil {
			t.Fatal(err)
		}
		found := names.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("found nothing like %s in %s", names, file)
		}
		for _, name := range found {
			if !in[name[1]] {
				t.Errorf("the picture lacks %s of pkg/bus/%s", name[1], file)
			}
		}
	}
}
