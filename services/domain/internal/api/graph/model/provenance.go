package model

import (
	"maps"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/origin"
)

// Provenance wraps what is known of where a version comes from.
type Provenance struct {
	core.Origin
	report provenance.Report
}

// WrapProvenance wraps the domain's.
func WrapProvenance(o core.Origin) Provenance {
	p := Provenance{Origin: o}
	if o.Report != nil {
		p.report = *o.Report
	}
	return p
}

// NextLookAt is null for on request only.
func (p Provenance) NextLookAt() *time.Time { return p.NextAt }

// Problem is null if the last lookup succeeded.
func (p Provenance) Problem() *string { return orNull(p.Origin.Problem) }

// Since is null before the first lookup.
func (p Provenance) Since() *time.Time {
	if p.Report == nil {
		return nil
	}
	return &p.Origin.Since
}

// SignedBy are the signers.
func (p Provenance) SignedBy() []string { return p.report.SignedBy }

// Builders are who built it.
func (p Provenance) Builders() []string { return p.report.Builders }

// BuildLevel is null if it is not known.
func (p Provenance) BuildLevel() *int { return positive(p.report.BuildLevel) }

// Sources are what it was built from.
func (p Provenance) Sources() []ProvenanceSource {
	all := make([]ProvenanceSource, len(p.report.Sources))
	for i, s := range p.report.Sources {
		all[i] = ProvenanceSource{Repository: s.Repository, Revision: orNull(s.Revision)}
	}
	return all
}

// Claimed is null if nothing is claimed.
func (p Provenance) Claimed() *ClaimedSource {
	if p.report.Claimed == nil || p.report.Claimed.None() {
		return nil
	}
	return &ClaimedSource{Source: orNull(p.report.Claimed.Source), Revision: orNull(p.report.Claimed.Revision)}
}

// Labels are those of the image, by key.
func (p Provenance) Labels() []ImageLabel {
	all := make([]ImageLabel, 0, len(p.report.Labels))
	for _, key := range slices.Sorted(maps.Keys(p.report.Labels)) {
		all = append(all, ImageLabel{Key: key, Value: p.report.Labels[key]})
	}
	return all
}

// SbomFormat is null without an SBOM.
func (p Provenance) SbomFormat() *string {
	if p.report.Contents == nil {
		return nil
	}
	return &p.report.Contents.Format
}

// ComponentCount is null without an SBOM.
func (p Provenance) ComponentCount() *int {
	if p.report.Contents == nil {
		return nil
	}
	return &p.report.Contents.Count
}

// Vulnerabilities is null without a report.
func (p Provenance) Vulnerabilities() *Vulnerabilities {
	v := p.report.Vulnerabilities
	if v == nil {
		return nil
	}
	return &Vulnerabilities{
		Scanner: orNull(v.Scanner), ScannedAt: v.ScannedAt, Critical: v.Critical, High: v.High, Medium: v.Medium, Low: v.Low,
		Unknown: v.Unknown, NotAffected: v.NotAffected,
	}
}

// Evidence is everything that was found.
func (p Provenance) Evidence() []ProvenanceEvidence {
	all := make([]ProvenanceEvidence, len(p.report.Evidence))
	for i, e := range p.report.Evidence {
		all[i] = ProvenanceEvidence{
			Digest: e.Digest, Form: e.Form, PredicateType: orNull(e.PredicateType), Signer: orNull(e.Signer), Identity: orNull(e.Identity),
			SignedAt: e.SignedAt, Problem: orNull(e.Problem),
		}
	}
	return all
}

// Truncated reports whether more is attached to the image than was read.
func (p Provenance) Truncated() bool { return p.report.Truncated }

// WrapComponent is a component of an SBOM.
func WrapComponent(c provenance.Component) Component {
	return Component{Name: c.Name, Version: orNull(c.Version), Purl: orNull(c.PURL)}
}

// Whereabouts wraps where a version is live.
type Whereabouts struct{ core.Whereabouts }

// WrapWhereabouts wraps the domain's.
func WrapWhereabouts(w core.Whereabouts) Whereabouts { return Whereabouts{w} }

// Component is null for a search by digest.
func (w Whereabouts) Component() *Component {
	if w.Whereabouts.Component.Name == "" {
		return nil
	}
	c := WrapComponent(w.Whereabouts.Component)
	return &c
}

// WrapComponentChange wraps a component that differs between two version sets.
func WrapComponentChange(c origin.ComponentChange) ComponentChange {
	return ComponentChange{Name: c.Name, Before: c.Before, After: c.After}
}
