package driver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// CheckNew applies the rules for newly published or pulled drivers to the newest major, beyond those of Load and FromFiles: a config is an
// object, and the root of its schema must say so. Drivers that are already installed are exempt, and so are older majors, which never
// change (R21). The error is Invalid and names file and line.
func CheckNew(bundles []*Bundle) error {
	if len(bundles) == 0 {
		return nil
	}
	newest := slices.MaxFunc(bundles, func(a, b *Bundle) int { return cmp.Compare(a.major, b.major) })
	files := []string{newest.manifest.EnvironmentSchema, newest.manifest.ApplicationEnvironmentSchema}
	if newest.IsCheck() {
		files = []string{newest.manifest.Check.ConfigSchema}
	}
	for _, file := range files {
		if err := checkRoot(newest.files[file]); err != nil {
			return located(file, newest.files[file], err)
		}
	}
	return nil
}

// checkRoot checks the root of a schema that has been compiled.
func checkRoot(text []byte) error {
	doc, err := schema.Decode(text)
	if err != nil {
		return err
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return fault.InvalidFields(fault.Field{Problem: fmt.Sprintf("found %v for a schema; expected one whose root has \"type\": \"object\"",
			doc)})
	}
	kind, ok := root["type"]
	if kind == "object" {
		return nil
	}
	found := "nothing"
	if ok {
		text, err := json.Marshal(kind)
		if err != nil {
			return fmt.Errorf("encode type: %w", err)
		}
		found = string(text)
	}
	return fault.InvalidFields(fault.Field{Name: "/type", Problem: "found " + found + "; expected \"object\": a configuration has fields"})
}
