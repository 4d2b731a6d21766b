package reference

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/flow"
)

// examples are shown in the pages. Each is checked by the program's own code before it is.
//
//go:embed examples/*
var examples embed.FS

// pipeline is the page about the definition of a pipeline.
func pipeline(root string) ([]*page, error) {
	p, err := newPage("flow.md", "pkg/flow/flow.json")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "pkg/flow/flow.json"))
	if err != nil {
		return nil, fmt.Errorf("read schema of pipelines: %w", err)
	}
	s, err := newSchema(text)
	if err != nil {
		return nil, err
	}
	example, err := checkedPipeline()
	if err != nil {
		return nil, err
	}
	p.heading(2, "Example")
	p.code("yaml", example)
	s.sections = map[string]string{"gate": "gate", "approval": "approval", "step": "steps", "input": "input"}
	p.heading(2, "Definition")
	if err := s.write(p, s.root); err != nil {
		return nil, err
	}
	p.heading(2, "Steps")
	p.paragraph(prose(s.root.at("$defs").at("step").text("description")))
	steps, err := s.steps()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, step := range steps {
		rows = append(rows, []string{"[`" + step.kind + "`](#step-" + step.kind + ")", prose(sentence(step.of.text("description")))})
	}
	p.table([]string{"Type", "Meaning"}, rows)
	for _, step := range steps {
		p.heading(3, "Step "+step.kind)
		p.paragraph(prose(sentence(step.of.text("description"))))
		if err := s.write(p, step.of); err != nil {
			return nil, fmt.Errorf("step %s: %w", step.kind, err)
		}
	}
	for _, name := range []string{"gate", "approval", "input", "status_config"} {
		definition := s.root.at("$defs").at(name)
		heading := title(name)
		if given := definition.text("title"); given != "" {
			heading = given
		}
		p.heading(2, heading)
		p.paragraph(prose(sentence(definition.text("description"))))
		if err := s.write(p, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return []*page{p}, nil
}

func fieldHeader() []string { return []string{"Field", "Value", "Meaning"} }

// write adds the table of the properties of an object.
func (s jsonSchema) write(p *page, of object) error {
	rows, err := s.rows(of, "")
	if err != nil {
		return err
	}
	p.table(fieldHeader(), rows)
	return nil
}

// step is a type of steps.
type step struct {
	kind string
	of   object
}

// steps are the types of steps: each if … then … of the definition of a step has the type in if, and its fields in then.
func (s jsonSchema) steps() ([]step, error) {
	list, _ := s.root.at("$defs").at("step").get("allOf").([]any)
	var all []step
	for _, item := range list {
		variant, ok := item.(object)
		kind, isText := s.resolve(variant.at("if")).at("properties").at("type").get("const").(string)
		if !ok || !isText {
			return nil, fmt.Errorf("step: found %v; expected if with a constant type", item)
		}
		all = append(all, step{kind, s.resolve(variant.at("then"))})
	}
	return all, nil
}

// checkedPipeline is the example of a pipeline, whose definition and configurations are valid for the built-in driver.
func checkedPipeline() (string, error) {
	text, definition, err := example("pipeline.yaml")
	if err != nil {
		return "", err
	}
	if err := checkPipeline(definition); err != nil {
		return "", err
	}
	return text, nil
}

// checkPipeline is an error unless a definition and its configurations are valid for the built-in driver.
func checkPipeline(definition json.RawMessage) error {
	parsed, err := flow.Parse(definition)
	if err != nil {
		return fmt.Errorf("example of a pipeline: %w", err)
	}
	builtIn, err := builtInDriver()
	if err != nil {
		return err
	}
	for _, s := range parsed.Steps {
		if s.Type != flow.Deploy {
			continue
		}
		if err := builtIn.ValidateApplicationEnvironment(s.Config); err != nil {
			return fmt.Errorf("example of a pipeline: config of %s: %w", s.Environment, err)
		}
	}
	return nil
}

// example is an example in YAML, as text and as JSON.
func example(name string) (string, json.RawMessage, error) {
	text, err := examples.ReadFile("examples/" + name)
	if err != nil {
		return "", nil, fmt.Errorf("example: %w", err)
	}
	encoded, err := asJSON(text)
	if err != nil {
		return "", nil, fmt.Errorf("example %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), encoded, nil
}

// asJSON is YAML as JSON.
func asJSON(text []byte) (json.RawMessage, error) {
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("parse YAML: %w", err)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return encoded, nil
}

// builtInDriver is the driver that every installation has.
func builtInDriver() (*driver.Bundle, error) {
	set, err := driver.Embedded()
	if err != nil {
		return nil, fmt.Errorf("built-in drivers: %w", err)
	}
	bundle, err := set.Get("argo-rollouts@1")
	if err != nil {
		return nil, fmt.Errorf("built-in driver: %w", err)
	}
	return bundle, nil
}
