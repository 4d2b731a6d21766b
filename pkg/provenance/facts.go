package provenance

import (
	"slices"
	"time"
)

// Facts is what policies see of the provenance of everything that would be deployed together. A fact that is not known of every image is
// absent, so that a policy that requires it does not permit. What images claim is no fact (D52).
type Facts struct {
	// SignedBy are the signers that have signed every image; absent if one image is not signed.
	SignedBy []string `json:"signed_by,omitempty"`
	// Builders and Repositories are those of all images; absent if one image has no provenance, or provenance without them.
	Builders     []string `json:"builders,omitempty"`
	Repositories []string `json:"repositories,omitempty"`
	// Revisions are the commits that all images were built from; absent if the provenance of one does not say.
	Revisions []string `json:"revisions,omitempty"`
	// BuildLevel is the lowest; 0 if that of one image is not known.
	BuildLevel int `json:"build_level,omitempty"`
	// Components is how many all images have; absent if one has no SBOM.
	Components *int `json:"components,omitempty"`
	// SBOMFormats are the formats in which every image has an SBOM, CycloneDX and SPDX; absent if there is none.
	SBOMFormats []string `json:"sbom_formats,omitempty"`
	// Scanned reports whether there is a report about the vulnerabilities of every image: without it, the fields below are absent.
	Scanned bool `json:"scanned,omitempty"`
	// Critical and High are the vulnerabilities of any image.
	Critical []string `json:"critical,omitempty"`
	High     []string `json:"high,omitempty"`
	// ScannedAt is the oldest scan; absent if that of one image is not known.
	ScannedAt *time.Time `json:"scanned_at,omitempty"`
}

// Sum combines the reports of several images. A nil report states nothing, and without images there are no facts.
func Sum(all []*Report) Facts {
	if len(all) == 0 {
		return Facts{}
	}
	var f Facts
	components, contents := 0, true
	f.Scanned = true
	signed, built, sourced, revised, dated := true, true, true, true, true
	for i, r := range all {
		if r == nil {
			return Facts{}
		}
		if signed = signed && len(r.SignedBy) > 0; i == 0 {
			f.SignedBy = slices.Clone(r.SignedBy)
		}
		f.SignedBy = slices.DeleteFunc(f.SignedBy, func(name string) bool { return !slices.Contains(r.SignedBy, name) })
		built = built && len(r.Builders) > 0
		f.Builders = append(f.Builders, r.Builders...)
		sourced = sourced && len(r.Sources) > 0
		for _, s := range r.Sources {
			f.Repositories = append(f.Repositories, s.Repository)
			revised = revised && s.Revision != ""
			f.Revisions = append(f.Revisions, s.Revision)
		}
		if i == 0 {
			f.BuildLevel = r.BuildLevel
		}
		f.BuildLevel = min(f.BuildLevel, r.BuildLevel)
		if contents = contents && r.Contents != nil; contents {
			components += r.Contents.Count
		}
		if i == 0 {
			f.SBOMFormats = r.Contents.Formats()
		}
		f.SBOMFormats = slices.DeleteFunc(f.SBOMFormats, func(format string) bool { return !slices.Contains(r.Contents.Formats(), format) })
		v := r.Vulnerabilities
		if f.Scanned = f.Scanned && v != nil; !f.Scanned {
			continue
		}
		f.Critical, f.High = append(f.Critical, v.Critical...), append(f.High, v.High...)
		if dated = dated && v.ScannedAt != nil; dated && (f.ScannedAt == nil || v.ScannedAt.Before(*f.ScannedAt)) {
			f.ScannedAt = v.ScannedAt
		}
	}
	if !signed {
		f.SignedBy = nil
	}
	if !built {
		f.Builders = nil
	}
	if !sourced {
		f.Repositories = nil
	}
	if !sourced || !revised {
		f.Revisions = nil
	}
	if contents {
		f.Components = &components
	}
	if !f.Scanned {
		f.Critical, f.High, dated = nil, nil, false
	}
	if !dated {
		f.ScannedAt = nil
	}
	f.SignedBy, f.Critical, f.High = set(f.SignedBy), first(set(f.Critical), MaxVulnerabilities), first(set(f.High), MaxVulnerabilities)
	// A list that was cut would satisfy a policy that allows all of its members.
	f.Builders, f.Repositories, f.Revisions = whole(set(f.Builders)), whole(set(f.Repositories)), whole(set(f.Revisions))
	f.SBOMFormats = set(f.SBOMFormats)
	return f
}

// whole is a list that is short enough for policies, or nil.
func whole(all []string) []string {
	if len(all) > MaxEvidence {
		return nil
	}
	return all
}

// set is a list without repetitions; nil for an empty one.
func set(all []string) []string {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return slices.Compact(all)
}
