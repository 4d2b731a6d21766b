package reference

import (
	"fmt"
	"path/filepath"

	"github.com/lockstep-cd/lockstep/pkg/testkit/chartvalues"
)

// charts is the page of the values of the Helm charts.
func charts(root string) ([]*page, error) {
	p, err := newPage("chart-values.md", "the comments in charts/*/values.yaml")
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(root, "charts/*/values.yaml"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("charts: found %d files of values, %w; expected some", len(names), err)
	}
	for _, name := range names {
		documented, err := chartvalues.Read(name)
		if err != nil {
			return nil, err
		}
		chart := filepath.Base(filepath.Dir(name))
		p.heading(2, chart)
		var rows [][]string
		for _, v := range documented {
			rows = append(rows, []string{code(v.Path), code(v.Default), prose(sentence(v.Text))})
		}
		p.table([]string{"Value", "Default", "Meaning"}, rows)
	}
	return []*page{p}, nil
}
