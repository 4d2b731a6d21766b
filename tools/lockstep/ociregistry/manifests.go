package ociregistry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// manifest is one pushed manifest under one tag or digest.
type manifest struct {
	Repository string `json:"repository"`
	Reference  string `json:"reference"`
	MediaType  string `json:"media_type"`
	Body       []byte `json:"body"`
}

// manifests keeps one file for each repository and reference.
type manifests struct{ dir string }

func openManifests(dir string) (manifests, error) {
	m := manifests{dir}
	return m, errors.Join(os.MkdirAll(m.files(), 0o750), os.MkdirAll(m.blobs(), 0o750))
}

func (m manifests) files() string { return filepath.Join(m.dir, "manifests") }

func (m manifests) blobs() string { return filepath.Join(m.dir, "blobs") }

func (m manifests) put(v manifest) error {
	name := sha256.Sum256([]byte(v.Repository + ":" + v.Reference))
	return writeJSON(filepath.Join(m.files(), hex.EncodeToString(name[:])+".json"), v)
}

// each calls fn for every manifest, indexes last: they refer to the others.
func (m manifests) each(fn func(manifest) error) error {
	var all []manifest
	err := eachJSON(m.files(), func(_ string, v manifest) error {
		all = append(all, v)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b manifest) int { return cmp.Compare(rank(a.MediaType), rank(b.MediaType)) })
	for _, v := range all {
		if err := fn(v); err != nil {
			return err
		}
	}
	return nil
}

func rank(mediaType string) int {
	if strings.Contains(mediaType, "index") || strings.Contains(mediaType, "manifest.list") {
		return 1
	}
	return 0
}

// writeJSON replaces a file at once: a reader sees the old or the new content, never half of it.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".writing-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), errors.Join(err, os.Remove(f.Name())))
	}
	return os.Rename(f.Name(), path)
}

// eachJSON reads every file of a folder, in the order of their names.
func eachJSON[T any](dir string, fn func(path string, v T) error) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(path), err)
		}
		var v T
		if err := json.Unmarshal(b, &v); err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(path), err)
		}
		if err := fn(path, v); err != nil {
			return err
		}
	}
	return nil
}
