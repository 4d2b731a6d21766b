package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

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

// ShownReads knows what environments are shown as.
type ShownReads interface {
	// EnvironmentsShownAs are the names of the environments that are shown by some display names, by these. What is written by people is
	// looked up here before it is stored: only names are.
	EnvironmentsShownAs(ctx context.Context, organization int64, display []string) (map[string]string, error)
}

// ByNames are texts that people wrote, with names in place of what is shown: names by display name, as EnvironmentsShownAs has them.
func ByNames(written []string, names map[string]string) []string {
	named := slices.Clone(written)
	for i, one := range named {
		if name, shown := names[one]; shown {
			named[i] = name
		}
	}
	return named
}

// ShownName is how people are shown something that may have a display name: with the name that it goes by.
func ShownName(name, display string) string {
	if display == "" || display == name {
		return name
	}
	return fmt.Sprintf("%s (%s)", display, name)
}

// CheckDescription finds what is wrong with a description.
func CheckDescription(field, text string) []fault.Field {
	if len(text) <= maxDescription {
		return nil
	}
	return []fault.Field{{Name: field, Problem: fmt.Sprintf("found %d bytes; expected at most %d", len(text), maxDescription)}}
}

// MaxLabels is how many labels an application, an environment or a service has.
const MaxLabels = 32

// The bounds of other details.
const (
	maxLinks = 20
	maxOwner = 200
	maxLink  = 2000
	maxTitle = 100
)

// Keys and values of labels have the form of those of Kubernetes.
var (
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

// CheckLabels finds what is wrong with labels, in the order of their keys.
func CheckLabels(field string, labels map[string]string) (found []fault.Field) {
	if len(labels) > MaxLabels {
		found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf("found %d; expected at most %d", len(labels), MaxLabels)})
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(found) >= MaxLabels { // what is wrong with these is enough
			break
		}
		prefix, name, prefixed := strings.Cut(key, "/")
		if !prefixed {
			prefix, name = "", key
		}
		if !labelName.MatchString(name) || prefixed && (len(prefix) > 253 || !labelPrefix.MatchString(prefix)) {
			found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf(
				"found the label %.80q; expected a key such as team or example.com/team, with letters, digits, dots, dashes and underscores", key,
			)})
			continue
		}
		if value := labels[key]; value != "" && !labelName.MatchString(value) {
			found = append(found, fault.Field{Name: field + "/" + pointer(key), Problem: fmt.Sprintf(
				"found %.80q; expected letters, digits, dots, dashes and underscores, at most 63, beginning and ending with a letter or digit", value,
			)})
		}
	}
	return found
}

// pointer is a key as a part of a JSON pointer.
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// HasLabels reports whether labels have all those of a selector, which is not empty.
func HasLabels(labels, selector map[string]string) bool {
	for key, value := range selector {
		if has, exists := labels[key]; !exists || has != value {
			return false
		}
	}
	return len(selector) > 0
}

// CheckOwner finds what is wrong with the name of an owner; empty is nobody.
func CheckOwner(field, owner string) []fault.Field { return checkLine(field, owner, maxOwner) }

// CheckLinks finds what is wrong with links, in the order of their titles.
func CheckLinks(field string, links map[string]string) (found []fault.Field) {
	if len(links) > maxLinks {
		found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf("found %d; expected at most %d", len(links), maxLinks)})
	}
	for _, title := range slices.Sorted(maps.Keys(links)) {
		if len(found) >= maxLinks {
			break
		}
		if wrong := checkLine(field, title, maxTitle); len(wrong) > 0 || strings.TrimSpace(title) == "" {
			found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf(
				"found the title %.120q; expected one line of text, at most %d bytes", title, maxTitle,
			)})
			continue
		}
		if link := links[title]; len(link) > maxLink || !PlainLink(link) {
			found = append(found, fault.Field{Name: field + "/" + pointer(title), Problem: fmt.Sprintf(
				"found %.200q; expected an http or https address without credentials, at most %d bytes", link, maxLink,
			)})
		}
	}
	return found
}

func checkLine(field, text string, most int) []fault.Field {
	if len(text) <= most && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl) {
		return nil
	}
	return []fault.Field{{Name: field, Problem: fmt.Sprintf(
		"found %.80q, of %d bytes; expected one line of text, at most %d bytes", text, len(text), most,
	)}}
}

// WrongMember says which member of a JSON object has a value of another type than expected, and what is wrong with it; false for any other
// error of decoding.
func WrongMember(err error) (member, problem string, ok bool) {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return "", "", false
	}
	found, _, _ := strings.Cut(wrong.Value, " ")
	return strings.ReplaceAll(wrong.Field, ".", "/"), fmt.Sprintf("found %s; expected %s", jsonWord(found), jsonType(wrong.Type)), true
}

// jsonWord is what a user calls a JSON value of a type.
func jsonWord(of string) string {
	switch of {
	case "string":
		return "a text"
	case "array":
		return "a list"
	case "bool":
		return "true or false"
	default:
		return "a " + of
	}
}

// jsonType is what a user calls the JSON value that fits a type.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return `a list, such as ["a","b"]`
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Int, reflect.Int64, reflect.Int32:
		return "a whole number"
	default:
		return "a number"
	}
}
