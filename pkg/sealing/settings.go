package sealing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
)

// Settings are what an operator decides about the credentials of organizations. They are the same for all services that have them. With the
// zero value organizations have no credentials of their own.
type Settings struct {
	// KeysetRef is a reference to the keyset that values are sealed with, as `lockstep keyset create` makes it; empty for none: values are
	// refused then, and references are not. It is read whenever it is needed.
	KeysetRef string `koanf:"keyset_ref"`
	// References are the secrets that organizations may refer to; others are refused.
	References []Allowance `koanf:"references"`
}

// Allowance lets organizations refer to secrets.
type Allowance struct {
	// Prefix is the beginning of the references, up to /, # or, of environment variables, _; or a whole reference. For example
	// vault:secret/data/shop/ or k8s:shop/.
	Prefix string `koanf:"prefix" yaml:"prefix" json:"prefix"`
	// Organizations are those that may use them.
	Organizations []int64 `koanf:"organizations" yaml:"organizations" json:"organizations"`
}

// Check finds what is wrong with settings under a key.
func (s Settings) Check(key string) (problems []fault.Field) {
	if s.KeysetRef != "" && !reference.Is(s.KeysetRef) {
		// The value is not shown: it may be the keyset itself, entered here by mistake.
		problems = append(problems, fault.Field{Name: key + ".keyset_ref", Problem: reference.Expected})
	}
	for i, a := range s.References {
		at := fmt.Sprintf("%s.references[%d].", key, i)
		if !isPrefix(a.Prefix) {
			problems = append(problems, fault.Field{
				Name: at + "prefix", Problem: "expected the beginning of references up to /, # or _, such as vault:secret/data/shop/, or a whole reference",
			})
		}
		if len(a.Organizations) == 0 || slices.ContainsFunc(a.Organizations, func(o int64) bool { return o <= 0 }) {
			problems = append(problems, fault.Field{
				Name: at + "organizations", Problem: "expected the numbers of the organizations that may use these references",
			})
		}
	}
	return problems
}

// isPrefix reports whether references of one place begin with a text. A scheme alone would be every secret of the process.
func isPrefix(prefix string) bool {
	scheme, rest, _ := strings.Cut(prefix, ":")
	if !slices.Contains([]string{"env", "file", "k8s", "vault"}, scheme) || strings.Trim(rest, "/#_") == "" || !clean(prefix) {
		return false
	}
	return reference.Is(prefix) || strings.HasSuffix(rest, "/") || strings.HasSuffix(rest, "#")
}

// clean reports whether no part of a path leads elsewhere.
func clean(ref string) bool {
	_, rest, _ := strings.Cut(ref, ":")
	path, _, _ := strings.Cut(rest, "#")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return !slices.ContainsFunc(parts, func(part string) bool { return part == "" || part == "." || part == ".." })
}

// Allows reports whether an organization may use a reference.
func (s Settings) Allows(organization int64, ref string) bool {
	if len(ref) > MaxReference || !reference.Is(ref) || !clean(ref) {
		return false
	}
	return slices.ContainsFunc(s.References, func(a Allowance) bool {
		if !isPrefix(a.Prefix) || !slices.Contains(a.Organizations, organization) {
			return false
		}
		rest, begins := strings.CutPrefix(ref, a.Prefix)
		open := strings.HasSuffix(a.Prefix, "/") || strings.HasSuffix(a.Prefix, "#") ||
			strings.HasPrefix(a.Prefix, "env:") && strings.HasSuffix(a.Prefix, "_")
		return begins && (rest == "" || open)
	})
}
