package driver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
	newest := newestOf(bundles)
	for _, file := range newest.schemas() {
		if err := checkRoot(newest.files[file]); err != nil {
			return located(file, newest.files[file], err)
		}
	}
	return nil
}

func newestOf(bundles []*Bundle) *Bundle {
	return slices.MaxFunc(bundles, func(a, b *Bundle) int { return cmp.Compare(a.major, b.major) })
}

// schemas are the files of the bundle's schemas.
func (b *Bundle) schemas() []string {
	if b.IsCheck() {
		return []string{b.manifest.Check.ConfigSchema}
	}
	return []string{b.manifest.EnvironmentSchema, b.manifest.ApplicationEnvironmentSchema}
}

// CheckWidgets reports widgets in the newest major that the console does not know, or that edit another type, to their authors.
// Installations load such a driver: its forms have the control of the type there (R24). The error is Invalid and names file and line.
func CheckWidgets(bundles []*Bundle) error {
	if len(bundles) == 0 {
		return nil
	}
	newest := newestOf(bundles)
	for _, file := range newest.schemas() {
		problems, err := schema.UnknownWidgets(newest.files[file])
		if err != nil {
			return located(file, newest.files[file], err)
		}
		var wrong []fault.Field
		for _, pointer := range slices.Sorted(maps.Keys(problems)) {
			wrong = append(wrong, fault.Field{Name: pointer, Problem: problems[pointer]})
		}
		if len(wrong) > 0 {
			return located(file, newest.files[file], fault.InvalidFields(wrong...))
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
