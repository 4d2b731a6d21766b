package execution

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// maxReason bounds the reason that a caller gives, in characters: it goes into the row, the history and an event.
const maxReason = 1024

// CheckReason refuses a reason that is shorter than least characters, or too long.
func CheckReason(reason string, least int) error {
	if n := utf8.RuneCountInString(reason); n < least || n > maxReason {
		return fault.InvalidFields(fault.Field{
			Name:    "reason",
			Problem: fmt.Sprintf("found %d characters, expected %d to %d", n, least, maxReason),
		})
	}
	return nil
}

// CheckOrganization refuses a number that no organization has.
func CheckOrganization(organization int64) error {
	if organization <= 0 {
		return fault.InvalidFields(fault.Field{
			Name:    "organization_id",
			Problem: fmt.Sprintf("found %d, expected a number above zero", organization),
		})
	}
	return nil
}

// CheckLabel says what is wrong with a label.
func CheckLabel(name, value string) string {
	if len(name) > maxLabel || len(value) > maxLabel || name == "" || strings.ContainsRune(name+value, 0) || !utf8.ValidString(name+value) {
		return fmt.Sprintf("expected a name and a value of at most %d bytes of text, without NUL", maxLabel)
	}
	return ""
}

// CheckNamed says what is wrong with the id of a workflow that is asked for.
func CheckNamed(workflow string) error {
	if problem := checkWorkflowID(workflow); problem != "" {
		return fault.InvalidFields(fault.Field{Name: "workflow_id", Problem: problem})
	}
	return nil
}

func checkWorkflowID(id string) string {
	if n := utf8.RuneCountInString(id); n < 1 || n > maxWorkflowID {
		return fmt.Sprintf("found %d characters, expected 1 to %d", n, maxWorkflowID)
	}
	bad := func(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if strings.ContainsFunc(id, bad) {
		return fmt.Sprintf("found %q, expected printable characters without spaces", id)
	}
	return ""
}
