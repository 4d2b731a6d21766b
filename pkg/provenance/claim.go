package provenance

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// The annotations and labels by which an image names its source, as the OCI image specification defines them.
const (
	SourceKey   = "org.opencontainers.image.source"
	RevisionKey = "org.opencontainers.image.revision"
)

// Claim is what an image says of its own source, by annotations or labels. Anyone who may push an image can write any, and a label may be
// that of a base image: it is for people to read, and satisfies nothing that requires a verified fact (D52).
type Claim struct {
	// Source is an http or https address, and Revision a commit of 7 to 64 hexadecimal digits; empty for none.
	Source   string `json:"source,omitempty"`
	Revision string `json:"revision,omitempty"`
}

var claimedCommit = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// NewClaim makes a claim of two texts. One that is not valid is left out.
func NewClaim(source, revision string) Claim {
	var c Claim
	u, err := url.Parse(source)
	if err == nil && len(source) <= MaxText && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		!strings.ContainsFunc(source, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar }) {
		c.Source = source
	}
	if revision = strings.ToLower(revision); claimedCommit.MatchString(revision) {
		c.Revision = revision
	}
	return c
}

// ClaimIn is the claim that annotations or labels make.
func ClaimIn(texts map[string]string) Claim { return NewClaim(texts[SourceKey], texts[RevisionKey]) }

// None reports whether nothing is claimed.
func (c Claim) None() bool { return c == Claim{} }

const (
	// MaxLabels is how many labels of an image are kept, and maxLabel how long a key or a value is, in bytes.
	MaxLabels = 50
	maxLabel  = 256
)

// Labels are what an image says of itself by annotations and labels, of several places the first that has a key. What is longer than is
// kept is left out; empty, and not nil, for none. As a claim they are for people and for filters: they satisfy nothing that requires a
// verified fact.
func Labels(places ...map[string]string) map[string]string {
	found := map[string]string{}
	for _, place := range places {
		for key, value := range place {
			if _, known := found[key]; !known && isLabel(key) && key != "" && isLabel(value) {
				found[key] = value
			}
		}
	}
	kept := map[string]string{}
	for _, key := range first(slices.Sorted(maps.Keys(found)), MaxLabels) {
		kept[key] = found[key]
	}
	return kept
}

// isLabel reports whether a key or a value of a label is kept as it is.
func isLabel(text string) bool { return len(text) <= maxLabel && Cut(text) == text }
