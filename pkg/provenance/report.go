// Package provenance is what the registry service and the domain service exchange about where an image comes from: the facts that verified
// signatures and attestations state, and the evidence for each (D52).
//
// It is pure: it verifies nothing. The registry service verifies and makes reports; the domain service keeps them, and policies see their
// sum.
package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of a report. What a registry answers is cut to them, and the report says so.
const (
	// MaxReport is the size of a report as JSON, in bytes: below what one message of the event bus carries.
	MaxReport = 900 << 10
	// MaxComponents is how many components of an image are kept.
	MaxComponents = 5000
	// MaxVulnerabilities is how many identifiers are kept of each severity.
	MaxVulnerabilities = 500
	// MaxEvidence is how many pieces of evidence are kept.
	MaxEvidence = 100
	// MaxText is the length of one name, identifier or message, in bytes.
	MaxText = 500
)

// Report is what verified evidence states about one image, and beside it what the image claims. What is not known is absent.
type Report struct {
	// SignedBy are the configured signers that have signed the image.
	SignedBy []string `json:"signed_by,omitempty"`
	// Builders are who built it, by SLSA provenance, and Sources from what.
	Builders []string `json:"builders,omitempty"`
	Sources  []Source `json:"sources,omitempty"`
	// BuildLevel is the SLSA level that the operator has given the signer of the provenance; 0 for none.
	BuildLevel int `json:"build_level,omitempty"`
	// Contents is what the image consists of, by its SBOM; nil if there is none.
	Contents *Contents `json:"contents,omitempty"`
	// Vulnerabilities is the latest report about vulnerabilities; nil if there is none.
	Vulnerabilities *Vulnerabilities `json:"vulnerabilities,omitempty"`
	// Claimed is what the image itself says of its source. Nobody has verified it: nothing is decided by it. It is nil until the image was
	// read, and empty if it claims nothing.
	Claimed *Claim `json:"claimed,omitempty"`
	// Labels are the annotations and labels of the image: nil until they were read, and empty for none. Nobody has verified them either.
	Labels map[string]string `json:"labels,omitzero"`
	// Evidence is everything that is attached to the image, also what was refused.
	Evidence []Evidence `json:"evidence,omitempty"`
	// Truncated means that more is attached to the image than was read.
	Truncated bool `json:"truncated,omitempty"`
}

// Source is a revision of a repository.
type Source struct {
	Repository string `json:"repository"`
	Revision   string `json:"revision,omitempty"`
}

// Contents is a software bill of materials.
type Contents struct {
	// Format is CycloneDX, SPDX, or "CycloneDX and SPDX".
	Format string `json:"format"`
	// Count is how many components it lists, also those that are not kept.
	Count      int         `json:"count"`
	Components []Component `json:"components,omitempty"`
}

// Formats are those of an SBOM, each by itself; none without one.
func (c *Contents) Formats() []string {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc([]string{"CycloneDX", "SPDX"}, func(format string) bool { return !strings.Contains(c.Format, format) })
}

// Component is a part of an image.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// PURL is the package URL; empty if the SBOM has none.
	PURL string `json:"purl,omitempty"`
}

// Vulnerabilities is a report about vulnerabilities.
type Vulnerabilities struct {
	Scanner string `json:"scanner,omitempty"`
	// ScannedAt is when the scan ended; nil if the report does not say.
	ScannedAt *time.Time `json:"scanned_at,omitempty"`
	// Critical and High are identifiers such as CVE-2021-44228.
	Critical []string `json:"critical,omitempty"`
	High     []string `json:"high,omitempty"`
	// Medium, Low and Unknown count.
	Medium  int `json:"medium,omitempty"`
	Low     int `json:"low,omitempty"`
	Unknown int `json:"unknown,omitempty"`
	// NotAffected lists those that a VEX statement of a configured signer removes from the lists above.
	NotAffected []string `json:"not_affected,omitempty"`
}

// Evidence is one signature or attestation that is attached to an image.
type Evidence struct {
	// Digest is that of the blob.
	Digest string `json:"digest"`
	// Form is bundle, cosign-signature or cosign-attestation.
	Form string `json:"form"`
	// PredicateType is what it attests; empty where that is not known, because it was not verified.
	PredicateType string `json:"predicate_type,omitempty"`
	// Signer is the configured signer that it was verified with; empty if it was refused.
	Signer string `json:"signer,omitempty"`
	// Identity is the identity of the certificate that it was signed with; empty for keys.
	Identity string `json:"identity,omitempty"`
	// SignedAt is the time that a log or a time-stamp authority confirms; nil for none.
	SignedAt *time.Time `json:"signed_at,omitempty"`
	// Problem is why it was refused, or why it states no facts; empty for none.
	Problem string `json:"problem,omitempty"`
}

// Verified reports whether a configured signer made it.
func (e Evidence) Verified() bool { return e.Signer != "" }

// Bound cuts a report to the bounds of this package, and puts lists into a fixed order, so that equal evidence makes equal reports.
func (r *Report) Bound() {
	r.SignedBy, r.Builders = names(r.SignedBy), names(r.Builders)
	for i := range r.Sources {
		r.Sources[i] = Source{Cut(r.Sources[i].Repository), Cut(r.Sources[i].Revision)}
	}
	slices.SortFunc(r.Sources, func(a, b Source) int { return compare(a.Repository, b.Repository, a.Revision, b.Revision) })
	r.Sources = first(slices.Compact(r.Sources), MaxEvidence)
	if r.Claimed != nil {
		bounded := NewClaim(r.Claimed.Source, r.Claimed.Revision)
		r.Claimed = &bounded
	}
	if r.Labels != nil {
		r.Labels = Labels(r.Labels)
	}
	if c := r.Contents; c != nil {
		for i, one := range c.Components {
			c.Components[i] = Component{Cut(one.Name), Cut(one.Version), Cut(one.PURL)}
		}
		slices.SortFunc(c.Components, func(a, b Component) int { return compare(a.Name, b.Name, a.Version, b.Version, a.PURL, b.PURL) })
		c.Components = first(slices.Compact(c.Components), MaxComponents)
	}
	if v := r.Vulnerabilities; v != nil {
		v.Scanner, v.Critical, v.High, v.NotAffected = Cut(v.Scanner), names(v.Critical), names(v.High), names(v.NotAffected)
	}
	for i, e := range r.Evidence {
		r.Evidence[i].PredicateType, r.Evidence[i].Identity, r.Evidence[i].Problem = Cut(e.PredicateType), Cut(e.Identity), Cut(e.Problem)
	}
	slices.SortFunc(r.Evidence, func(a, b Evidence) int { return compare(a.Digest, b.Digest, a.Form, b.Form) })
	if len(r.Evidence) > MaxEvidence {
		r.Evidence, r.Truncated = r.Evidence[:MaxEvidence], true
	}
}

// Encode writes a report within MaxReport: components that do not fit are left out, the last by name first.
func (r Report) Encode() ([]byte, error) {
	r.Bound()
	for {
		text, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode a report of provenance: %w", err)
		}
		if len(text) <= MaxReport {
			return text, nil
		}
		if r.Contents == nil || len(r.Contents.Components) == 0 {
			return nil, fmt.Errorf("found a report of provenance of %d bytes; expected at most %d", len(text), MaxReport)
		}
		shorter := *r.Contents
		shorter.Components = shorter.Components[:len(shorter.Components)/2]
		r.Contents = &shorter
	}
}

// Decode reads a report. One that is too large is refused; fields of a later release are left out.
func Decode(text []byte) (Report, error) {
	var r Report
	if len(text) > MaxReport {
		return r, fmt.Errorf("found a report of provenance of %d bytes; expected at most %d", len(text), MaxReport)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&r); err != nil {
		return r, fmt.Errorf("read a report of provenance: %w", err)
	}
	r.Bound()
	return r, nil
}

// Cut is a text within MaxText, of valid UTF-8 without NUL, which PostgreSQL cannot store.
func Cut(text string) string {
	text = string(bytes.ReplaceAll(bytes.ToValidUTF8([]byte(text), []byte("\uFFFD")), []byte{0}, []byte("\uFFFD")))
	if len(text) <= MaxText {
		return text
	}
	end := MaxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func names(all []string) []string {
	for i := range all {
		all[i] = Cut(all[i])
	}
	slices.Sort(all)
	return first(slices.Compact(all), MaxVulnerabilities)
}

func first[T any](all []T, most int) []T { return all[:min(len(all), most)] }

// compare compares pairs of texts, the first that differ.
func compare(pairs ...string) int {
	for pair := range slices.Chunk(pairs, 2) {
		if c := slices.Compare(pair[:1], pair[1:]); c != 0 {
			return c
		}
	}
	return 0
}
