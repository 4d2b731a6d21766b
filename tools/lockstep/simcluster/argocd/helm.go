package argocd

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"text/template"

	"github.com/go-git/go-git/v5/plumbing/object"
	"go.yaml.in/yaml/v4"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// chartFile is what makes a folder one for Helm.
const chartFile = "Chart.yaml"

// charted are the objects that a chart's templates make of its values and those of the Application. Of what Helm adds to
// Go's templates there is what charts cannot do without: toYaml, indent, nindent, quote, default.
func charted(app apiserver.Object, commit *object.Commit) ([]apiserver.Object, error) {
	folder := app.Text("spec", "source", "path")
	values := map[string]any{}
	if file, err := commit.File(path.Join(folder, "values.yaml")); err == nil {
		text, err := file.Contents()
		if err != nil {
			return nil, fmt.Errorf("values.yaml: %w", err)
		}
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			return nil, fmt.Errorf("values.yaml: %w", err)
		}
	}
	overlay(values, app.Map("spec", "source", "helm", "valuesObject"))
	known := map[string]any{
		"Values":  values,
		"Release": map[string]any{"Name": app.Name(), "Namespace": app.Text("spec", "destination", "namespace")},
		"Chart":   map[string]any{"Name": path.Base(folder)},
	}
	tree, err := commit.Tree()
	if err == nil {
		tree, err = tree.Tree(path.Join(folder, "templates"))
	}
	if err != nil {
		return nil, fmt.Errorf("templates of the chart: %w", err)
	}
	var objects []apiserver.Object
	err = tree.Files().ForEach(func(file *object.File) error {
		text, err := file.Contents()
		if err != nil {
			return err
		}
		made, err := executed(file.Name, text, known)
		if err == nil {
			objects = append(objects, made...)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("helm template: %w", err)
	}
	return objects, nil
}

// executed is what one template makes.
func executed(name, text string, known map[string]any) ([]apiserver.Object, error) {
	t, err := template.New(name).Option("missingkey=zero").Funcs(template.FuncMap{
		"toYaml": func(v any) (string, error) {
			made, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(made), "\n"), err
		},
		"indent":  indented,
		"nindent": func(n int, s string) string { return "\n" + indented(n, s) },
		"quote":   func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"default": func(otherwise, v any) any {
			if v == nil || v == "" {
				return otherwise
			}
			return v
		},
	}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	var made strings.Builder
	if err := t.Execute(&made, known); err != nil {
		return nil, fmt.Errorf("execute: %w", err)
	}
	if strings.TrimSpace(made.String()) == "" {
		return nil, nil
	}
	objects, err := parseText(made.String())
	if err == nil && len(objects) == 0 {
		err = errors.New(name + ": expected objects")
	}
	return objects, err
}

func indented(n int, s string) string {
	pad := strings.Repeat(" ", n)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad)
}

// overlay puts values over others, as Helm does: maps are merged, everything else is replaced.
func overlay(values, over map[string]any) {
	for name, v := range over {
		inner, isMap := v.(map[string]any)
		under, wasMap := values[name].(map[string]any)
		if isMap && wasMap {
			overlay(under, inner)
			continue
		}
		values[name] = v
	}
}
