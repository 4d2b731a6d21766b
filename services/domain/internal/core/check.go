package core

import (
	"fmt"
	"regexp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// MaxReason is how many bytes a reason may have.
const MaxReason = 1000

// CheckReason refuses a reason that is too long.
func CheckReason(reason string) error {
	if len(reason) <= MaxReason {
		return nil
	}
	return fault.InvalidFields(
		fault.Field{Name: "/reason", Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(reason), MaxReason)},
	)
}

// nameForm is what everything people name is called: it goes into identifiers, gates and paths unescaped.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const maxDescription = 4096

// CheckName finds what is wrong with a name.
func CheckName(field, name string) []fault.Field {
	if nameForm.MatchString(name) {
		return nil
	}
	return []fault.Field{{Name: field, Problem: fmt.Sprintf(
		"found %.100q; expected 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", name,
	)}}
}

// CheckDescription finds what is wrong with a description.
func CheckDescription(field, text string) []fault.Field {
	if len(text) <= maxDescription {
		return nil
	}
	return []fault.Field{{Name: field, Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(text), maxDescription)}}
}
