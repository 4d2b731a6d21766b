package policy

import (
	"embed"
	"fmt"
	"path"
	"strings"
)

// templates has a file of policies for each template, and its cases beside it. The first line is a comment that says what it does.
//
//go:embed templates
var templates embed.FS

// Template is a policy set to begin with.
type Template struct {
	Name string `json:"name"`
	// Summary is what it does, as a sentence.
	Summary string `json:"summary"`
	Text    string `json:"text"`
}

// Templates are all of them, by name. Each has cases, which a test runs.
func Templates() ([]Template, error) {
	files, err := templates.ReadDir("templates")
	if err != nil {
		return nil, fmt.Errorf("list templates of policies: %w", err)
	}
	var all []Template
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".cedar")
		if !ok {
			continue
		}
		text, err := templates.ReadFile(path.Join("templates", f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the template %s: %w", name, err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		all = append(all, Template{Name: name, Summary: strings.TrimSpace(strings.TrimPrefix(first, "//")), Text: string(text)})
	}
	return all, nil
}

// TemplateCases are the cases of a template.
func TemplateCases(name string) (Cases, error) {
	text, err := templates.ReadFile(path.Join("templates", name+".cases.json"))
	if err != nil {
		return Cases{}, fmt.Errorf("read the cases of the template %s: %w", name, err)
	}
	return ReadCases(text)
}
