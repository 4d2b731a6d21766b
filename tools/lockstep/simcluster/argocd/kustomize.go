package argocd

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// kustomizationFile is what makes a folder one for Kustomize.
const kustomizationFile = "kustomization.yaml"

// sourceType is what Argo CD takes an Application's folder for.
func sourceType(app apiserver.Object, commit *object.Commit) string {
	if _, err := commit.File(path.Join(app.Text("spec", "source", "path"), kustomizationFile)); err == nil {
		return "Kustomize"
	}
	if _, err := commit.File(path.Join(app.Text("spec", "source", "path"), chartFile)); err == nil {
		return "Helm"
	}
	return "Directory"
}

// rendered are the objects of an Application: the files of its folder, what its chart makes of its values, or what its
// kustomization makes of the files that it names, with the parameters of the Application.
func rendered(app apiserver.Object, commit *object.Commit) ([]apiserver.Object, error) {
	folder := app.Text("spec", "source", "path")
	switch sourceType(app, commit) {
	case "Directory":
		return manifests(commit, folder)
	case "Helm":
		return charted(app, commit)
	}
	file, err := commit.File(path.Join(folder, kustomizationFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kustomizationFile, err)
	}
	text, err := file.Contents()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kustomizationFile, err)
	}
	kustomization, err := parseOne(text)
	if err != nil {
		return nil, err
	}
	var objects []apiserver.Object
	for _, name := range kustomization.List("resources") {
		resource, err := commit.File(path.Join(folder, fmt.Sprint(name)))
		if err != nil {
			return nil, fmt.Errorf("accumulating resources: accumulation err='accumulating resources from '%v'': %w", name, err)
		}
		found, err := parse(resource)
		if err != nil {
			return nil, fmt.Errorf("accumulating resources from '%v': %w", name, err)
		}
		objects = append(objects, found...)
	}
	images := imagesOf(kustomization, app)
	for i, o := range objects {
		setImages(o, images)
		if objects[i], err = patched(o, app.List("spec", "source", "kustomize", "patches")); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// imagesOf are the references by image name: those of the kustomization, and over them those of the Application.
func imagesOf(kustomization, app apiserver.Object) map[string]string {
	images := map[string]string{}
	for _, each := range kustomization.List("images") {
		m, _ := each.(map[string]any)
		entry := apiserver.Object(m)
		reference := entry.Text("newName")
		if reference == "" {
			reference = entry.Text("name")
		}
		if tag := entry.Text("newTag"); tag != "" {
			reference += ":" + tag
		}
		if digest := entry.Text("digest"); digest != "" {
			reference += "@" + digest
		}
		images[entry.Text("name")] = reference
	}
	for _, each := range app.List("spec", "source", "kustomize", "images") {
		if name, reference, ok := strings.Cut(fmt.Sprint(each), "="); ok {
			images[name] = reference
		}
	}
	return images
}

func setImages(o apiserver.Object, images map[string]string) {
	for _, c := range o.List("spec", "template", "spec", "containers") {
		m, _ := c.(map[string]any)
		image, _ := m["image"].(string)
		name, _, _ := strings.Cut(image, "@")
		if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
			name = name[:colon]
		}
		if with := images[name]; with != "" {
			m["image"] = with
		}
	}
}

// patched applies the patches that are meant for an object. Of a custom resource, Kustomize replaces lists.
func patched(o apiserver.Object, patches []any) (apiserver.Object, error) {
	for _, each := range patches {
		m, _ := each.(map[string]any)
		p := apiserver.Object(m)
		if p.Text("target", "kind") != o.Text("kind") || p.Text("target", "name") != o.Name() {
			continue
		}
		patch, err := parseOne(p.Text("patch"))
		if err != nil {
			return nil, err
		}
		before, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("patch of %s: %w", o.Name(), err)
		}
		text, err := json.Marshal(patch)
		if err != nil {
			return nil, fmt.Errorf("patch of %s: %w", o.Name(), err)
		}
		after, err := jsonpatch.MergePatch(before, text)
		if err != nil {
			return nil, fmt.Errorf("patch of %s: %w", o.Name(), err)
		}
		if o, err = apiserver.ParseObject(after); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// parseOne reads one document.
func parseOne(text string) (apiserver.Object, error) {
	objects, err := parseText(text)
	if err == nil && len(objects) != 1 {
		err = errors.New("expected one document")
	}
	if err != nil {
		return nil, fmt.Errorf("invalid Kustomization: %w", err)
	}
	return objects[0], nil
}
