package prove

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
)

// Kind is what a signer may state, by the type of the predicate.
type Kind string

// The kinds.
const (
	Signature       Kind = "signature"
	Provenance      Kind = "provenance"
	SBOM            Kind = "sbom"
	Vulnerabilities Kind = "vulnerabilities"
	VEX             Kind = "vex"
)

// Kinds are all that facts are made of.
func Kinds() []Kind { return []Kind{Signature, Provenance, SBOM, Vulnerabilities, VEX} }

// predicateSign is the predicate of a signature in a bundle: it states nothing else.
const predicateSign = "https://sigstore.dev/cosign/sign/v1"

// KindOf is the kind of a predicate; empty for one that no facts are made of.
func KindOf(predicateType string) Kind {
	for prefix, kind := range map[string]Kind{
		"https://slsa.dev/provenance/": Provenance, "https://cyclonedx.org/bom": SBOM, "https://spdx.dev/Document": SBOM,
		"https://in-toto.io/attestation/vulns": Vulnerabilities, "https://cosign.sigstore.dev/attestation/vuln/v1": Vulnerabilities,
		"https://openvex.dev/ns": VEX,
	} {
		if strings.HasPrefix(predicateType, prefix) {
			return kind
		}
	}
	if predicateType == "" || predicateType == predicateSign {
		return Signature
	}
	return ""
}

// record adds what a verified statement says to a report, and to excluded what a VEX statement says. The error is why it adds nothing.
func record(r *provenance.Report, s Statement, digest string, excluded *[]string) error {
	switch KindOf(s.PredicateType) {
	case Signature:
		r.SignedBy = append(r.SignedBy, s.Signer)
		return nil
	case Provenance:
		return recordBuild(r, s)
	case SBOM:
		return recordContents(r, s)
	case Vulnerabilities:
		return recordVulnerabilities(r, s)
	case VEX:
		return recordExcluded(s, digest, excluded)
	default:
		return fmt.Errorf("no facts are made of predicates of type %.200q", s.PredicateType)
	}
}

// recordBuild reads SLSA provenance, 0.2 and 1.
func recordBuild(r *provenance.Report, s Statement) error {
	type dependency struct {
		URI    string            `json:"uri"`
		Digest map[string]string `json:"digest"`
	}
	var p struct {
		BuildDefinition struct {
			ResolvedDependencies []dependency `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
		} `json:"runDetails"`
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
		Invocation struct {
			ConfigSource dependency `json:"configSource"`
		} `json:"invocation"`
		Materials []dependency `json:"materials"`
	}
	if err := json.Unmarshal(s.Predicate, &p); err != nil {
		return fmt.Errorf("found provenance that cannot be read: %w", err)
	}
	builder := p.RunDetails.Builder.ID
	if builder == "" {
		builder = p.Builder.ID
	}
	if builder == "" {
		return fmt.Errorf("found provenance without a builder")
	}
	r.Builders = append(r.Builders, builder)
	if s.BuildLevel > 0 && (r.BuildLevel == 0 || s.BuildLevel < r.BuildLevel) {
		r.BuildLevel = s.BuildLevel
	}
	for _, d := range slices.Concat(p.BuildDefinition.ResolvedDependencies, []dependency{p.Invocation.ConfigSource}, p.Materials) {
		uri, ok := strings.CutPrefix(d.URI, "git+")
		if !ok {
			continue
		}
		repository, _, _ := strings.Cut(uri, "@refs/")
		revision := d.Digest["gitCommit"]
		if revision == "" {
			revision = d.Digest["sha1"]
		}
		r.Sources = append(r.Sources, provenance.Source{Repository: repository, Revision: revision})
		break // the first is what was built, the others are what it needed
	}
	return nil
}

// recordContents reads an SBOM in CycloneDX or SPDX 2.
func recordContents(r *provenance.Report, s Statement) error {
	type component struct {
		Group      string      `json:"group"`
		Name       string      `json:"name"`
		Version    string      `json:"version"`
		PURL       string      `json:"purl"`
		Components []component `json:"components"`
	}
	var document struct {
		BOMFormat   string      `json:"bomFormat"`
		Components  []component `json:"components"`
		SPDXVersion string      `json:"spdxVersion"`
		Packages    []struct {
			Name         string `json:"name"`
			Version      string `json:"versionInfo"`
			ExternalRefs []struct {
				Type    string `json:"referenceType"`
				Locator string `json:"referenceLocator"`
			} `json:"externalRefs"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(s.Predicate, &document); err != nil {
		return fmt.Errorf("found an SBOM that cannot be read: %w", err)
	}
	var found []provenance.Component
	format := "CycloneDX"
	switch {
	case document.BOMFormat == format:
		for queue := document.Components; len(queue) > 0; queue = queue[1:] {
			c := queue[0]
			if strings.HasPrefix(c.Group, "@") { // the scope of an npm package is part of its name
				c.Name = c.Group + "/" + c.Name
			}
			found = append(found, provenance.Component{Name: c.Name, Version: c.Version, PURL: c.PURL})
			queue = append(queue, c.Components...)
		}
	case strings.HasPrefix(document.SPDXVersion, "SPDX-2"):
		format = "SPDX"
		for _, p := range document.Packages {
			c := provenance.Component{Name: p.Name, Version: p.Version}
			for _, ref := range p.ExternalRefs {
				if ref.Type == "purl" {
					c.PURL = ref.Locator
				}
			}
			found = append(found, c)
		}
	default:
		return fmt.Errorf("found an SBOM in a form that is not known; expected CycloneDX or SPDX 2, as JSON")
	}
	found = slices.DeleteFunc(found, func(c provenance.Component) bool { return c.Name == "" })
	if r.Contents == nil {
		r.Contents = &provenance.Contents{Format: format}
	} else if !strings.Contains(r.Contents.Format, format) {
		r.Contents.Format = "CycloneDX and SPDX"
	}
	for _, c := range found {
		c.Name, c.Version, c.PURL = provenance.Cut(c.Name), provenance.Cut(c.Version), provenance.Cut(c.PURL)
		r.Contents.Components = append(r.Contents.Components, c)
	}
	slices.SortFunc(r.Contents.Components, func(a, b provenance.Component) int {
		return strings.Compare(a.Name+"\x00"+a.Version+"\x00"+a.PURL, b.Name+"\x00"+b.Version+"\x00"+b.PURL)
	})
	r.Contents.Components = slices.Compact(r.Contents.Components)
	r.Contents.Count = len(r.Contents.Components)
	return nil
}

// scan is a report about vulnerabilities in one of the forms that scanners write: that of in-toto, Trivy's, or Grype's.
type scan struct {
	Scanner struct {
		URI    string          `json:"uri"`
		Result json.RawMessage `json:"result"`
	} `json:"scanner"`
	Metadata struct {
		// Finished is that of in-toto, and Ended that of cosign.
		Finished *time.Time `json:"scanFinishedOn"`
	} `json:"metadata"`
}

// found is one vulnerability, with the severity in lower case.
type found struct{ id, severity string }

func (s scan) vulnerabilities() ([]found, error) {
	var list []struct {
		ID       string `json:"id"`
		Severity []struct {
			Score string `json:"score"`
		} `json:"severity"`
	}
	var all []found
	if json.Unmarshal(s.Scanner.Result, &list) == nil && list != nil {
		for _, v := range list {
			one := found{id: v.ID}
			for _, severity := range v.Severity { // several methods: the worst counts
				one.severity = worse(one.severity, severity.Score)
			}
			all = append(all, one)
		}
		return all, nil
	}
	var report struct {
		// Results is Trivy's: one without findings is left out there, and its schema is recognized by its version.
		SchemaVersion int `json:"SchemaVersion"`
		Results       []struct {
			Vulnerabilities []struct {
				ID       string `json:"VulnerabilityID"`
				Severity string `json:"Severity"`
			} `json:"Vulnerabilities"`
		} `json:"Results"`
		// Matches is Grype's.
		Matches *[]struct {
			Vulnerability struct {
				ID       string `json:"id"`
				Severity string `json:"severity"`
			} `json:"vulnerability"`
		} `json:"matches"`
	}
	if err := json.Unmarshal(s.Scanner.Result, &report); err != nil || report.SchemaVersion == 0 && report.Matches == nil {
		return nil, fmt.Errorf("found a report about vulnerabilities in a form that is not known; expected that of in-toto, Trivy or Grype")
	}
	for _, r := range report.Results {
		for _, v := range r.Vulnerabilities {
			all = append(all, found{v.ID, strings.ToLower(v.Severity)})
		}
	}
	if report.Matches != nil {
		for _, m := range *report.Matches {
			all = append(all, found{m.Vulnerability.ID, strings.ToLower(m.Vulnerability.Severity)})
		}
	}
	return all, nil
}

// worse is the worse one of two severities. What is not known counts less than what is.
func worse(a, b string) string {
	order := []string{"low", "medium", "high", "critical"}
	b = strings.ToLower(b)
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// recordVulnerabilities keeps the report of the latest scan; one without a time counts as the oldest.
func recordVulnerabilities(r *provenance.Report, s Statement) error {
	var read scan
	if err := json.Unmarshal(s.Predicate, &read); err != nil {
		return fmt.Errorf("found a report about vulnerabilities that cannot be read: %w", err)
	}
	all, err := read.vulnerabilities()
	if err != nil {
		return err
	}
	at := read.Metadata.Finished
	if before := r.Vulnerabilities; before != nil && before.ScannedAt != nil && (at == nil || at.Before(*before.ScannedAt)) {
		return fmt.Errorf("there is a later report")
	}
	v := &provenance.Vulnerabilities{Scanner: read.Scanner.URI, ScannedAt: at}
	seen := map[string]bool{}
	for _, one := range all {
		if one.id == "" || seen[one.id+one.severity] {
			continue
		}
		seen[one.id+one.severity] = true
		switch one.severity {
		case "critical":
			v.Critical = append(v.Critical, one.id)
		case "high":
			v.High = append(v.High, one.id)
		case "medium":
			v.Medium++
		case "low", "negligible":
			v.Low++
		default:
			v.Unknown++
		}
	}
	r.Vulnerabilities = v
	return nil
}

// recordExcluded reads an OpenVEX document: the vulnerabilities that do not concern the image with the digest, or are fixed in it.
func recordExcluded(s Statement, digest string, excluded *[]string) error {
	var document struct {
		Statements []struct {
			Vulnerability struct {
				Name string `json:"name"`
			} `json:"vulnerability"`
			Status   string `json:"status"`
			Products []struct {
				ID string `json:"@id"`
			} `json:"products"`
		} `json:"statements"`
	}
	if err := json.Unmarshal(s.Predicate, &document); err != nil {
		return fmt.Errorf("found a VEX document that cannot be read: %w", err)
	}
	affected := map[string]bool{}
	for _, one := range document.Statements {
		about := len(one.Products) == 0 // the subject of the attestation is the product
		for _, p := range one.Products {
			about = about || strings.Contains(strings.ReplaceAll(p.ID, "%3A", ":"), digest)
		}
		if about && one.Vulnerability.Name != "" {
			affected[one.Vulnerability.Name] = one.Status != "not_affected" && one.Status != "fixed"
		}
	}
	for name, still := range affected { // of several statements about one, the last counts
		if !still {
			*excluded = append(*excluded, name)
		}
	}
	return nil
}

// exclude takes out of a report what does not concern the image.
func exclude(v *provenance.Vulnerabilities, excluded []string) {
	if v == nil {
		return
	}
	for _, list := range []*[]string{&v.Critical, &v.High} {
		*list = slices.DeleteFunc(*list, func(id string) bool {
			if slices.Contains(excluded, id) {
				v.NotAffected = append(v.NotAffected, id)
				return true
			}
			return false
		})
	}
}
