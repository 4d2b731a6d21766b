package driver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// CheckNew checks what the newest of a driver's majors must have, where it is published or pulled, beyond what Load and FromFiles ask of all:
// a configuration is an object, so the root of its schema says that it is one. Drivers that an installation has already are not held to
// it, and neither are older majors, which stay as they are for ever (R21). The error is Invalid and names file and line.
func CheckNew(bundles []*Bundle) error {
	if len(bundles) == 0 {
		return nil
	}
	newest := slices.MaxFunc(bundles, func(a, b *Bundle) int { return cmp.Compare(a.major, b.major) })
	for _, file := range []string{newest.manifest.EnvironmentSchema, newest.manifest.ApplicationEnvironmentSchema} {
		if err := checkRoot(newest.files[file]); err != nil {
			return located(file, newest.files[file], err)
		}
	}
	return nil
}

// checkRoot checks the root of a schema that compiles.
func checkRoot(text []byte) error {
	doc, err := schema.Decode(text)
	if err != nil {
		return err
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return fault.InvalidFields(fault.Field{Problem: fmt.Sprintf("found %v for a schema; expected one whose root has \"type\": \"object\"", doc)})
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
