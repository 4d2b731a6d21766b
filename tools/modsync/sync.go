package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/modfile"
)

// workspace is go.work and its modules.
type workspace struct {
	root      string
	goVersion string
	modules   map[string]*module // by module path
}

type module struct {
	dir  string // slash-separated, relative to the workspace
	file *modfile.File
}

// run corrects every go.mod, and returns the names of those that were wrong.
func run(root string, check bool) ([]string, error) {
	w, err := load(root)
	if err != nil {
		return nil, err
	}
	var changed []string
	for path, m := range w.modules {
		before := modfile.Format(m.file.Syntax)
		if err := w.align(path); err != nil {
			return nil, err
		}
		m.file.Cleanup()
		after := modfile.Format(m.file.Syntax)
		if bytes.Equal(before, after) {
			continue
		}
		name := filepath.Join(root, filepath.FromSlash(m.dir), "go.mod")
		changed = append(changed, name)
		if check {
			continue
		}
		//nolint:gosec // go.mod is a source file: as readable as the others
		if err := os.WriteFile(name, after, 0o644); err != nil {
			return nil, fmt.Errorf("write module file: %w", err)
		}
	}
	slices.Sort(changed)
	return changed, nil
}

func load(root string) (*workspace, error) {
	name := filepath.Join(root, "go.work")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read workspace: %w", err)
	}
	work, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return nil, fmt.Errorf("parse workspace: %w", err)
	}
	if work.Go == nil {
		return nil, fmt.Errorf("%s: no go directive; one is expected", name)
	}
	w := &workspace{root: root, goVersion: work.Go.Version, modules: map[string]*module{}}
	for _, use := range work.Use {
		name := filepath.Join(root, use.Path, "go.mod")
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		file, err := modfile.Parse(name, data, nil)
		if err != nil {
			return nil, fmt.Errorf("parse module: %w", err)
		}
		w.modules[file.Module.Mod.Path] = &module{dir: filepath.ToSlash(filepath.Clean(use.Path)), file: file}
	}
	return w, nil
}

// align changes one module in memory.
func (w *workspace) align(path string) error {
	m := w.modules[path]
	if m.file.Go == nil || m.file.Go.Version != w.goVersion {
		if err := m.file.AddGoStmt(w.goVersion); err != nil {
			return fmt.Errorf("set go directive of %s: %w", path, err)
		}
	}
	// A replace line for a sibling that is not needed (yet) is harmless; one for the module itself is a mistake.
	if err := m.file.DropReplace(path, ""); err != nil {
		return fmt.Errorf("drop replace of %s by itself: %w", path, err)
	}
	for _, sibling := range w.siblings(path) {
		relative, err := filepath.Rel(filepath.FromSlash(m.dir), filepath.FromSlash(w.modules[sibling].dir))
		if err != nil {
			return fmt.Errorf("find %s from %s: %w", sibling, path, err)
		}
		if err := m.file.AddReplace(sibling, "", filepath.ToSlash(relative), ""); err != nil {
			return fmt.Errorf("replace %s in %s: %w", sibling, path, err)
		}
	}
	return nil
}

// siblings returns the modules of the workspace that a module requires, directly or indirectly, sorted.
func (w *workspace) siblings(path string) []string {
	var found []string
	queue := []string{path}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, require := range w.modules[next].file.Require {
			sibling := require.Mod.Path
			if _, ok := w.modules[sibling]; ok && sibling != path && !slices.Contains(found, sibling) {
				found = append(found, sibling)
				queue = append(queue, sibling)
			}
		}
	}
	slices.Sort(found)
	return found
}
