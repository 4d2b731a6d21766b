// Package derive writes the parts of the charts that follow from other files: the keys of the services' configuration into the schemas of
// values, the permissions of NATS users, and copies of files in deploy/, because a chart cannot reach outside its folder.
//
// It renders nothing.
package derive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Files returns the expected content of the derived files of a checkout, by path relative to its root.
func Files(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, chart := range []string{"lockstep", "lockstep-relay"} {
		dir := filepath.Join("charts", chart)
		schema, err := withConfig(filepath.Join(root, dir, "values.schema.json"), configs()[chart])
		if err != nil {
			return nil, err
		}
		files[filepath.Join(dir, "values.schema.json")] = schema
	}
	for name, text := range users() {
		files[filepath.Join("charts/lockstep/files", name)] = text
	}
	files["deploy/nats/nats.conf"] = server()
	for to, from := range map[string]string{"alerts.yaml": "deploy/prometheus/alerts.yaml", "dashboard.json": "deploy/grafana/lockstep.json"} {
		text, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			return nil, fmt.Errorf("read what the chart copies: %w", err)
		}
		files[filepath.Join("charts/lockstep/files", to)] = text
	}
	return files, nil
}

// Stale returns the derived files that are out of date. With write they are updated.
func Stale(root string, write bool) ([]string, error) {
	files, err := Files(root)
	if err != nil {
		return nil, err
	}
	var stale []string
	for name, want := range files {
		path := filepath.Join(root, name)
		if got, err := os.ReadFile(path); err == nil && bytes.Equal(got, want) {
			continue
		}
		stale = append(stale, name)
		if !write {
			continue
		}
		//nolint:gosec // a source file: as readable as the others
		if err := os.WriteFile(path, want, 0o644); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
	}
	slices.Sort(stale)
	return stale, nil
}
