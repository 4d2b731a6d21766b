package graph_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
)

// reports plays the registry service: every image is signed, and consists of the same.
type reports struct{}

func (reports) Prove(context.Context, int64, string, string, bool) (provenance.Report, bool, error) {
	return provenance.Report{
		SignedBy: []string{"release"}, Builders: []string{"https://ci.example.com"}, BuildLevel: 3,
		Sources:         []provenance.Source{{Repository: "https://git.example.com/shop/api", Revision: "1a2b"}},
		Claimed:         &provenance.Claim{Source: "https://git.example.com/claimed", Revision: "v1"},
		Contents:        &provenance.Contents{Format: "SPDX", Count: 1, Components: []provenance.Component{{Name: "zlib", Version: "1.3"}}},
		Vulnerabilities: &provenance.Vulnerabilities{Critical: []string{"CVE-1"}, Low: 2},
		Evidence:        []provenance.Evidence{{Digest: digest(99), Form: "bundle", Signer: "release"}, {Digest: digest(98), Problem: "expired"}},
	}, false, nil
}

// TestProvenanceOverTheAPI: what is known of a version, where its components are, and a lookup on request (D52).
func TestProvenanceOverTheAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.populate()
	for {
		if _, worked, err := f.origins.LookUpDue(t.Context()); err != nil {
			t.Fatal(err)
		} else if !worked {
			break
		}
	}
	var data struct {
		Node struct {
			Provenance struct {
				SignedBy   []string
				SbomFormat string
				Components []struct{ Name, Version string }
				Sources    []struct{ Repository, Revision string }
				Claimed    *struct{ Source, Revision *string }
				Evidence   []struct{ Signer, Problem *string }

				Vulnerabilities struct {
					Critical []string
					Low      int
				}
			}
		}
		WhereComponent []struct{ Application struct{ Name string } }
	}
	const query = `{ node(id: "version_1") { ... on Version { provenance { signedBy sbomFormat components { name version } sources { repository revision } claimed { source revision }
		evidence { signer problem } vulnerabilities { critical low } lookedAt nextLookAt since problem
		buildLevel builders componentCount truncated } } }
		whereComponent(name: "zlib", version: "1.3") { application { name } environment { name } service { name } version { name } since component { name } } }`
	f.ask(ours, query, nil).into(t, &data)
	p := data.Node.Provenance
	if got := fmt.Sprint(p.SignedBy, p.Components, p.Sources, p.Vulnerabilities); got !=
		"[release] [{zlib 1.3}] [{https://git.example.com/shop/api 1a2b}] {[CVE-1] 2}" {
		t.Errorf("found %s", got)
	}
	if c := p.Claimed; c == nil || c.Source == nil || *c.Source != "https://git.example.com/claimed" || c.Revision != nil {
		t.Errorf("claimed %+v; expected the address without a commit", c)
	}
	if p.SbomFormat != "SPDX" || len(data.WhereComponent) != 0 {
		t.Errorf("an SBOM in %q; live in %+v, expected nowhere", p.SbomFormat, data.WhereComponent)
	}
	if len(p.Evidence) != 2 || p.Evidence[0].Signer != nil || p.Evidence[1].Problem != nil {
		t.Errorf("evidence %+v; expected one that was refused, then one that was verified", p.Evidence)
	}
	f.change(ours, "lookUpProvenance", "version", "id", map[string]any{"versionId": "version_1"})
	if _, worked, err := f.origins.LookUpDue(t.Context()); err != nil || !worked {
		t.Errorf("after a request: looked up %t, %v", worked, err)
	}
}
