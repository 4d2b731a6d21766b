package provenance_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
)

func at(hour int) *time.Time {
	t := time.Date(2026, 11, 24, hour, 0, 0, 0, time.UTC)
	return &t
}

func whole() *provenance.Report {
	return &provenance.Report{
		SignedBy: []string{"ci", "release"}, Builders: []string{"https://ci.example.com"}, BuildLevel: 3,
		Sources:         []provenance.Source{{Repository: "https://git.example.com/a", Revision: "1"}},
		Claimed:         &provenance.Claim{Source: "https://git.example.com/claimed", Revision: "c1a1ed0"},
		Contents:        &provenance.Contents{Format: "SPDX", Count: 2},
		Vulnerabilities: &provenance.Vulnerabilities{Critical: []string{"CVE-1"}, ScannedAt: at(10)},
	}
}

// TestAFactIsKnownOfEveryImageOrAbsent: what one image lacks, all of them together lack (D52).
func TestAFactIsKnownOfEveryImageOrAbsent(t *testing.T) {
	t.Parallel()
	second := whole()
	second.SignedBy, second.BuildLevel, second.Contents.Format = []string{"release", "qa"}, 2, "CycloneDX and SPDX"
	second.Vulnerabilities = &provenance.Vulnerabilities{Critical: []string{"CVE-1", "CVE-2"}, High: []string{"CVE-3"}, ScannedAt: at(8)}
	four := 4
	want := provenance.Facts{
		SignedBy: []string{"release"}, Builders: []string{"https://ci.example.com"}, Repositories: []string{"https://git.example.com/a"},
		Revisions: []string{"1"}, SBOMFormats: []string{"SPDX"}, BuildLevel: 2, Components: &four, Scanned: true, Critical: []string{"CVE-1", "CVE-2"}, High: []string{"CVE-3"}, ScannedAt: at(8),
	}
	if got := provenance.Sum([]*provenance.Report{whole(), second}); !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	for name, change := range map[string]func(*provenance.Report, *provenance.Facts){
		"signature": func(r *provenance.Report, f *provenance.Facts) { r.SignedBy, f.SignedBy = nil, nil },
		"builder":   func(r *provenance.Report, f *provenance.Facts) { r.Builders, f.Builders = nil, nil },
		"source": func(r *provenance.Report, f *provenance.Facts) {
			r.Sources, f.Repositories, f.Revisions = nil, nil, nil
		},
		"commit": func(r *provenance.Report, f *provenance.Facts) { r.Sources[0].Revision, f.Revisions = "", nil },
		"format": func(r *provenance.Report, f *provenance.Facts) { r.Contents.Format, f.SBOMFormats = "CycloneDX", nil },
		"level":  func(r *provenance.Report, f *provenance.Facts) { r.BuildLevel, f.BuildLevel = 0, 0 },
		"contents": func(r *provenance.Report, f *provenance.Facts) {
			r.Contents, f.Components, f.SBOMFormats = nil, nil, nil
		},
		"scan": func(r *provenance.Report, f *provenance.Facts) {
			r.Vulnerabilities, f.Scanned, f.Critical, f.High, f.ScannedAt = nil, false, nil, nil, nil
		},
		"scan's day": func(r *provenance.Report, f *provenance.Facts) { r.Vulnerabilities.ScannedAt, f.ScannedAt = nil, nil },
		"level of a signer that signs nothing else": func(r *provenance.Report, f *provenance.Facts) {
			r.SignedBy, f.SignedBy = []string{"other"}, nil
		},
	} {
		for _, first := range []bool{true, false} {
			lacking, expected := whole(), provenance.Sum([]*provenance.Report{whole(), whole()})
			change(lacking, &expected)
			all := []*provenance.Report{whole(), lacking}
			if first {
				slices.Reverse(all)
			}
			if got := provenance.Sum(all); !reflect.DeepEqual(got, expected) {
				t.Errorf("without the %s: found %+v, want %+v", name, got, expected)
			}
		}
	}
	for _, none := range [][]*provenance.Report{nil, {nil}, {whole(), nil}} {
		if got := provenance.Sum(none); !reflect.DeepEqual(got, provenance.Facts{}) {
			t.Errorf("of %d reports: %+v, want nothing", len(none), got)
		}
	}
}

// TestAClaimIsNoFact: what an image says of itself is an http or https address and a commit, and no policy sees it (D52).
func TestAClaimIsNoFact(t *testing.T) {
	t.Parallel()
	const good, commit = "https://git.example.com/shop/api", "1a2b3c4"
	for source, want := range map[string]string{
		good: good, "http://git.example.com/a": "http://git.example.com/a", "javascript:alert(1)": "", "ssh://git@git.example.com/a": "",
		"git@git.example.com:shop/api": "", "https://ann:secret@git.example.com/a": "", "https://": "", "https://:80/a": "", "//git.example.com/a": "",
		"https://git.example.com/a\nb": "", "https://git.example.com/a b": "", "https://git.example.com/\u202eb": "",
		"https://git.example.com/\xff": "", good + strings.Repeat("x", provenance.MaxText): "", "": "",
	} {
		if got := provenance.NewClaim(source, ""); got != (provenance.Claim{Source: want}) {
			t.Errorf("of %.80q: found %+v, want the source %q", source, got, want)
		}
	}
	for revision, want := range map[string]string{
		commit: commit, strings.Repeat("A", 40): strings.Repeat("a", 40), strings.Repeat("b", 64): strings.Repeat("b", 64),
		"1a2b3c": "", strings.Repeat("b", 65): "", "v1.2.3": "", "1a2b3c4\n": "", "main-12": "",
	} {
		if got := provenance.NewClaim("", revision); got != (provenance.Claim{Revision: want}) {
			t.Errorf("of %.80q: found %+v, want the revision %q", revision, got, want)
		}
	}
	claimed := &provenance.Report{Claimed: &provenance.Claim{Source: good, Revision: commit}}
	if got := provenance.Sum([]*provenance.Report{claimed}); !reflect.DeepEqual(got, provenance.Sum([]*provenance.Report{{}})) {
		t.Errorf("a claim makes the facts %+v", got)
	}
	sent := provenance.Report{Claimed: &provenance.Claim{Source: "javascript:alert(1)", Revision: commit}}
	text, err := sent.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := provenance.Decode(text); err != nil || got.Claimed == nil || *got.Claimed != (provenance.Claim{Revision: commit}) {
		t.Errorf("read again: %+v, %v", got.Claimed, err)
	}
	// A registry service of before, or another: what it sends is validated here too.
	got, err := provenance.Decode([]byte(`{"claimed": {"source": "javascript:alert(1)", "revision": "` + commit + `"}}`))
	if err != nil || *got.Claimed != (provenance.Claim{Revision: commit}) {
		t.Errorf("received: %+v, %v", got.Claimed, err)
	}
}

// TestFactsAreBounded: a list that policies allow all members of is absent rather than cut.
func TestFactsAreBounded(t *testing.T) {
	t.Parallel()
	var all []*provenance.Report
	for i := range 200 {
		r := whole()
		r.Builders = []string{fmt.Sprintf("https://ci%d.example.com", i)}
		r.Vulnerabilities.Critical = nil
		for j := range 100 {
			r.Vulnerabilities.Critical = append(r.Vulnerabilities.Critical, fmt.Sprintf("CVE-%d-%d", i, j))
		}
		all = append(all, r)
	}
	if f := provenance.Sum(all); f.Builders != nil || len(f.Critical) != provenance.MaxVulnerabilities {
		t.Errorf("found %d builders and %d vulnerabilities", len(f.Builders), len(f.Critical))
	}
}

// TestReportsHoldAnyText: what others attest is stored and shown.
func TestReportsHoldAnyText(t *testing.T) {
	t.Parallel()
	r := provenance.Report{SignedBy: []string{"b", "a", "b"}, Builders: []string{"a\x00b\xff" + strings.Repeat("é", 400)}}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := provenance.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.SignedBy, []string{"a", "b"}) || len(again.Builders[0]) > provenance.MaxText || strings.Contains(again.Builders[0], "\x00") {
		t.Errorf("found %+v", again)
	}
	for _, bad := range []string{"", "[", `"x"`, strings.Repeat(" ", provenance.MaxReport+1)} {
		if _, err := provenance.Decode([]byte(bad)); err == nil {
			t.Errorf("%.10q was read; want it refused", bad)
		}
	}
}
