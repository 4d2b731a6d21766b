package driver

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/schema"
)

// A check kind is a bundle as well (D48): a manifest, the schema of a check's configuration, and one program. It is loaded, digested, kept
// and published like a driver, and has no environments and no steps.

// Check is the one program of a check kind.
const Check Workflow = "check"

// checkForm is what a manifest says of a check kind.
type checkForm struct {
	ConfigSchema string   `json:"config_schema"`
	Program      string   `json:"program"`
	Targets      []string `json:"targets"`
}

//go:embed check.json
var checkManifestText []byte

// checkManifest is compiled once. It is part of the build, so any test finds a defect in it.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var checkManifest = sync.OnceValues(func() (*schema.Schema, error) { return schema.Compile(checkManifestText) })

// isCheckManifest reports whether a manifest is that of a check kind. One that cannot be read is a driver's, whose schema says what is
// wrong.
func isCheckManifest(text []byte) bool {
	var form struct {
		Check json.RawMessage `json:"check"`
	}
	return json.Unmarshal(text, &form) == nil && form.Check != nil
}

// IsCheck reports whether the bundle is a check kind, and no driver.
func (b *Bundle) IsCheck() bool { return b.manifest.Check != nil }

// Description returns what the manifest of a check kind says that it checks.
func (b *Bundle) Description() string { return b.manifest.Description }

// CheckSchema returns the schema of a check's configuration, from which a form can be built; nil for a driver.
func (b *Bundle) CheckSchema() json.RawMessage {
	if !b.IsCheck() {
		return nil
	}
	return slices.Clone(b.files[b.manifest.Check.ConfigSchema])
}

// CheckTargets returns what checks of the kind may be about: active, proposed or both.
func (b *Bundle) CheckTargets() []string {
	if b.IsCheck() && len(b.manifest.Check.Targets) > 0 {
		return slices.Clone(b.manifest.Check.Targets)
	}
	return []string{"active", "proposed"}
}

// ValidateCheck checks the configuration of a check of the kind; nil stands for an empty one. The error is Invalid, with one field for
// each finding, named by its JSON pointer.
func (b *Bundle) ValidateCheck(config json.RawMessage) error {
	if b.check == nil {
		return fault.New(fault.Invalid, "%s is a driver; expected a check kind", b.Ref())
	}
	if len(config) == 0 {
		config = json.RawMessage(`{}`)
	}
	if err := b.check.Validate(config); err != nil {
		return fmt.Errorf("config of a check of kind %s: %w", b.Ref(), err)
	}
	return nil
}

// CheckRef returns the reference of a check kind as a pipeline names it: web-request is short for web-request@1.
func CheckRef(kind string) string {
	if strings.Contains(kind, "@") {
		return kind
	}
	return Ref(kind, 1)
}
