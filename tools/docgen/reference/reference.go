// Package reference writes the reference pages of the documentation. Each page is a short introduction (intro/*.md) and what a part of the
// program knows about itself: comments in code, schemas, descriptors. Nothing about a single key, command or field is written here.
//
// It knows no site generator: pages are Markdown, and link to each other as files do.
package reference

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Folder is the folder of the pages, relative to the root of the checkout. It also holds pages that are written by hand.
const Folder = "docs/reference"

// Pages are all pages by path relative to Folder.
func Pages(root string) (map[string][]byte, error) {
	pages := map[string][]byte{}
	for _, write := range []func(root string) ([]*page, error){
		commandLine, commandOutput, configuration, events, functions, graph, grpc, charts, metrics, manifests, pipeline,
	} {
		pagesOf, err := write(root)
		if err != nil {
			return nil, err
		}
		for _, p := range pagesOf {
			pages[p.name] = p.bytes()
		}
	}
	return pages, nil
}

// Stale are the pages that are not what they ought to be: those that differ or are missing, and those that were written once and are no
// page any more. With write they are written or deleted. Pages that are written by hand are left alone.
func Stale(root string, write bool) ([]string, error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(root, Folder)
	found, err := files(folder)
	if err != nil {
		return nil, err
	}
	var stale []string
	for name, text := range found {
		if want, known := pages[name]; known && bytes.Equal(text, want) {
			delete(pages, name)
			continue
		} else if known || !bytes.HasPrefix(text, []byte(written)) {
			continue
		}
		stale = append(stale, filepath.Join(Folder, name))
		if write {
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return nil, fmt.Errorf("delete page: %w", err)
			}
		}
	}
	for name, text := range pages {
		stale = append(stale, filepath.Join(Folder, name))
		if !write {
			continue
		}
		if err := save(filepath.Join(folder, name), text); err != nil {
			return nil, err
		}
	}
	slices.Sort(stale)
	return stale, nil
}

// files are the files of a folder by path relative to it, with slashes; none if there is no folder.
func files(folder string) (map[string][]byte, error) {
	found, within := map[string][]byte{}, os.DirFS(folder)
	err := fs.WalkDir(within, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found[name], err = fs.ReadFile(within, name)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", folder, err)
	}
	return found, nil
}

func save(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // source files: as readable as the others
		return fmt.Errorf("create folder: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // as above
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
