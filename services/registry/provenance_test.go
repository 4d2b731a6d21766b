package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
	"github.com/lockstep-cd/lockstep/services/registry/internal/oci"
)

// prover is what the service makes of a configuration, without its database.
func prover(t *testing.T, signers ...SignerConfig) *prove.Prover {
	t.Helper()
	c := Config{Signers: signers}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	accounts, err := ociauth.NewAccounts(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return prove.NewProver(oci.New(oci.Deps{Transport: http.DefaultTransport, Accounts: accounts, Clock: clock.System()}), c.signers(nil))
}

func proved(t *testing.T, p *prove.Prover, image ociname.Digest) provenance.Report {
	t.Helper()
	r, off, err := p.Prove(t.Context(), 1, image.Context().Name(), image.DigestStr(), true)
	if err != nil || off {
		t.Fatalf("prove: off %t, %v", off, err)
	}
	return r
}

// problems are why evidence was refused.
func refusals(r provenance.Report) []string {
	var all []string
	for _, e := range r.Evidence {
		if e.Problem != "" {
			all = append(all, e.Problem)
		}
	}
	return all
}

// slsa is provenance of a build.
func slsa() map[string]any {
	return map[string]any{
		"buildDefinition": map[string]any{"buildType": "https://example.com/build/v1", "resolvedDependencies": []any{map[string]any{
			"uri": "git+https://git.example.com/shop/api@refs/heads/main", "digest": map[string]string{"gitCommit": strings.Repeat("a", 40)},
		}, map[string]any{"uri": "git+https://git.example.com/other/library", "digest": map[string]string{"gitCommit": strings.Repeat("b", 40)}}}},
		"runDetails": map[string]any{"builder": map[string]any{"id": "https://ci.example.com/builder"}},
	}
}

func bom(components ...map[string]any) map[string]any {
	return map[string]any{"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
}

func scanned(at string, severities map[string]string) map[string]any {
	var result []any
	for _, id := range slices.Sorted(maps.Keys(severities)) {
		result = append(result, map[string]any{"id": id, "severity": []any{map[string]any{"method": "nvd", "score": severities[id]}}})
	}
	return map[string]any{
		"scanner": map[string]any{"uri": "pkg:example/scanner", "result": result}, "metadata": map[string]any{"scanFinishedOn": at},
	}
}

// TestFactsComeFromWhatIsAttached: signatures and attestations become facts in a registry with the referrers API and in one without, as
// bundles and in the older tag scheme, with a key and with certificates of a private root (D52, #22).
func TestFactsComeFromWhatIsAttached(t *testing.T) {
	t.Parallel()
	for _, referrers := range []bool{true, false} {
		for _, tagged := range []bool{true, false} {
			for _, keyless := range []bool{true, false} {
				t.Run(fmt.Sprintf("referrers %t, tags %t, keyless %t", referrers, tagged, keyless), func(t *testing.T) {
					t.Parallel()
					registry := newImages(t, referrers)
					image := registry.push(t)
					signer, trust := newSigning(t), SignerConfig{Name: "release", BuildLevel: 3}
					if keyless {
						private := newPrivateRoot(t)
						signer = private.as(t, "ci@example.com", "https://gitlab.example.com", time.Now().Add(-time.Minute))
						trust.TrustedRoot, trust.Issuer, trust.Subject = private.file, "https://gitlab.example.com", "*@example.com"
					} else {
						trust.PublicKey = signer.publicFile(t)
					}
					attest := func(predicateType string, predicate any) {
						payload := statement(t, image.DigestStr(), predicateType, predicate)
						if !tagged {
							attach(t, image, signer.bundle(t, payload))
						}
					}
					predicates := []struct {
						of        string
						predicate any
					}{
						{slsaPredicate, slsa()},
						{bomPredicate, bom(
							map[string]any{"name": "log4j-core", "group": "org.apache.logging.log4j", "version": "2.14.1", "purl": "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"},
							map[string]any{"name": "core", "group": "@angular", "version": "17", "components": []any{map[string]any{"name": "inner", "version": "1"}}},
						)},
						{spdxPredicate, map[string]any{"spdxVersion": "SPDX-2.3", "packages": []any{map[string]any{
							"name": "openssl", "versionInfo": "3.0.1", "externalRefs": []any{map[string]any{"referenceType": "purl", "referenceLocator": "pkg:deb/openssl@3.0.1"}},
						}}}},
						{scanPredicate, scanned("2026-11-20T10:00:00Z", map[string]string{"CVE-1": "critical", "CVE-2": "critical", "CVE-3": "high", "CVE-4": "low"})},
						{vexPredicate, map[string]any{"statements": []any{
							map[string]any{"vulnerability": map[string]any{"name": "CVE-2"}, "status": "not_affected", "products": []any{map[string]any{"@id": "pkg:oci/api@" + image.DigestStr()}}},
							map[string]any{"vulnerability": map[string]any{"name": "CVE-1"}, "status": "not_affected", "products": []any{map[string]any{"@id": "pkg:oci/other"}}},
						}}},
					}
					if tagged {
						tag(t, image, ".sig", signer.plain(t, image.DigestStr()))
						var layers []layer
						for _, p := range predicates {
							layers = append(layers, signer.envelope(t, statement(t, image.DigestStr(), p.of, p.predicate)))
						}
						tag(t, image, ".att", layers...)
					} else {
						attest(signPredicate, map[string]any{})
						for _, p := range predicates {
							attest(p.of, p.predicate)
						}
					}
					r := proved(t, prover(t, trust), image)
					if got := refusals(r); len(got) > 0 {
						t.Fatalf("refused: %q", got)
					}
					if len(r.Evidence) != 6 || r.Truncated {
						t.Errorf("found %d pieces of evidence, truncated %t; want 6", len(r.Evidence), r.Truncated)
					}
					for _, e := range r.Evidence {
						if e.Signer != "release" || keyless != (e.SignedAt != nil) || keyless != (e.Identity == "https://gitlab.example.com ci@example.com") {
							t.Errorf("evidence %+v", e)
						}
					}
					if !slices.Equal(r.SignedBy, []string{"release"}) || !slices.Equal(r.Builders, []string{"https://ci.example.com/builder"}) ||
						r.BuildLevel != 3 {
						t.Errorf("signed by %q, built by %q at level %d", r.SignedBy, r.Builders, r.BuildLevel)
					}
					if want := (provenance.Source{Repository: "https://git.example.com/shop/api", Revision: strings.Repeat("a", 40)}); !slices.Equal(r.Sources, []provenance.Source{want}) {
						t.Errorf("sources %+v, want %+v", r.Sources, want)
					}
					var components []string
					for _, c := range r.Contents.Components {
						components = append(components, c.Name+"@"+c.Version)
					}
					if want := []string{"@angular/core@17", "inner@1", "log4j-core@2.14.1", "openssl@3.0.1"}; !slices.Equal(components, want) {
						t.Errorf("components %q, want %q", components, want)
					}
					v := r.Vulnerabilities
					if !slices.Equal(v.Critical, []string{"CVE-1"}) || !slices.Equal(v.High, []string{"CVE-3"}) || v.Low != 1 ||
						!slices.Equal(v.NotAffected, []string{"CVE-2"}) || v.ScannedAt == nil {
						t.Errorf("vulnerabilities %+v", v)
					}
				})
			}
		}
	}
}

// TestWhatCannotBeTrustedIsRefused: tampering, expiry, foreign identities and keys, replay from another image, and signers that state what
// they may not, each as bundle and in the tag scheme (D52, #22).
func TestWhatCannotBeTrustedIsRefused(t *testing.T) {
	t.Parallel()
	private, other := newPrivateRoot(t), newPrivateRoot(t)
	key := newSigning(t)
	const issuer, subject = "https://gitlab.example.com", "ci@example.com"
	now := time.Now().Add(-time.Minute)
	release := SignerConfig{Name: "release", PublicKey: key.publicFile(t)}
	ci := SignerConfig{Name: "ci", TrustedRoot: private.file, Issuer: issuer, Subject: subject}
	untimed := private.as(t, subject, issuer, now)
	untimed.stamp = nil
	for name, tt := range map[string]struct {
		trust  SignerConfig
		signer signing
		// about replaces the digest, and spoil changes what was signed.
		about string
		spoil bool
		want  string
	}{
		"a tampered payload with a key":            {trust: release, signer: key, spoil: true, want: "signature"},
		"a tampered payload with a certificate":    {trust: ci, signer: private.as(t, subject, issuer, now), spoil: true, want: "signature"},
		"a foreign key":                            {trust: release, signer: newSigning(t), want: "signature"},
		"a foreign subject":                        {trust: ci, signer: private.as(t, "mallory@example.com", issuer, now), want: "identity"},
		"a subject that only contains the pattern": {trust: ci, signer: private.as(t, "xci@example.com", issuer, now), want: "identity"},
		"a foreign issuer":                         {trust: ci, signer: private.as(t, subject, "https://evil.example.com", now), want: "identity"},
		"a foreign root":                           {trust: ci, signer: other.as(t, subject, issuer, now), want: ""},
		"an expired certificate":                   {trust: ci, signer: private.as(t, subject, issuer, now.Add(-2*time.Hour)), want: "certificate"},
		"a certificate that is not valid yet":      {trust: ci, signer: private.as(t, subject, issuer, now.Add(2*time.Hour)), want: "certificate"},
		"a certificate without a time":             {trust: ci, signer: untimed, want: "timestamp"},
		"a replay with a key":                      {trust: release, signer: key, about: "sha256:" + strings.Repeat("1", 64), want: ""},
		"a replay with a certificate":              {trust: ci, signer: private.as(t, subject, issuer, now), about: "sha256:" + strings.Repeat("1", 64), want: ""},
		"a key where a certificate is expected":    {trust: ci, signer: key, want: "of this kind"},
		"a certificate where a key is expected":    {trust: release, signer: private.as(t, subject, issuer, now), want: "of this kind"},
		"a signer that may not sign": {
			trust: SignerConfig{Name: "scanner", PublicKey: release.PublicKey, May: []string{"vulnerabilities"}}, signer: key, want: "may not state it",
		},
	} {
		for _, tagged := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, tags %t", name, tagged), func(t *testing.T) {
				t.Parallel()
				image := newImages(t, true).push(t)
				digest := image.DigestStr()
				if tt.about != "" {
					digest = tt.about
				}
				spoil := func(text []byte) []byte {
					if tt.spoil {
						return bytes.Replace(text, []byte(`"sha256:`), []byte(` "sha256:`), 1)
					}
					return text
				}
				if tagged {
					l := tt.signer.plain(t, digest)
					l.content = spoil(l.content)
					tag(t, image, ".sig", l)
				} else {
					payload := statement(t, digest, signPredicate, map[string]any{"of": "sha256:0"})
					content := tt.signer.bundle(t, payload)
					if tt.spoil {
						before, after := base64.StdEncoding.EncodeToString(payload), base64.StdEncoding.EncodeToString(spoil(payload))
						content = bytes.Replace(content, []byte(before), []byte(after), 1)
					}
					attach(t, image, content)
				}
				r := proved(t, prover(t, tt.trust), image)
				got := refusals(r)
				if len(r.SignedBy) > 0 || len(r.Evidence) != 1 || r.Evidence[0].Verified() || len(got) != 1 || !strings.Contains(got[0], tt.want) {
					t.Errorf("found %+v; want it refused for its %s", r, tt.want)
				}
			})
		}
	}
}

// TestARegistryCannotExhaustTheService: whatever is attached, what is read and kept is bounded, and one piece that cannot be read keeps no
// other from counting (D52).
func TestARegistryCannotExhaustTheService(t *testing.T) {
	t.Parallel()
	registry := newImages(t, true)
	image, signer := registry.push(t), newSigning(t)
	trust := SignerConfig{Name: "release", PublicKey: signer.publicFile(t)}
	p := prover(t, trust)
	attach(t, image, []byte(strings.Repeat("[", 1<<20)))
	attach(t, image, bytes.Repeat([]byte{'x'}, 7<<20+1))
	attach(t, image, []byte(`{}`))
	attach(t, image, signer.bundle(t, statement(t, image.DigestStr(), "https://example.com/unknown", map[string]any{})))
	var many []map[string]any
	for i := range provenance.MaxComponents + 100 {
		many = append(many, map[string]any{"name": fmt.Sprintf("%s%05d", strings.Repeat("n", 200), i), "version": strings.Repeat("v", 600)})
	}
	attach(t, image, signer.bundle(t, statement(t, image.DigestStr(), bomPredicate, bom(many...))))
	attach(t, image, signer.bundle(t, statement(t, image.DigestStr(), signPredicate, map[string]any{})))
	r := proved(t, p, image)
	if len(r.SignedBy) != 1 || len(refusals(r)) != 4 || r.Contents.Count != len(many) ||
		len(r.Contents.Components) != provenance.MaxComponents {
		t.Errorf("signed by %q, refused %q, %d components of %d", r.SignedBy, refusals(r), len(r.Contents.Components), r.Contents.Count)
	}
	text, err := r.Encode()
	if err != nil || len(text) > provenance.MaxReport {
		t.Fatalf("a report of %d bytes, %v", len(text), err)
	}
	if again, err := provenance.Decode(text); err != nil || again.Contents.Count != len(many) || len(again.Contents.Components) == 0 {
		t.Errorf("read again: %+v, %v", again.Contents, err)
	}
	for i := range 70 {
		attach(t, image, fmt.Appendf(nil, `{"a":%d}`, i))
	}
	if r := proved(t, p, image); !r.Truncated || len(r.Evidence) > provenance.MaxEvidence {
		t.Errorf("truncated %t with %d pieces of evidence", r.Truncated, len(r.Evidence))
	}
}

// TestSignersSeparateOrganizations: a signer of one organization states nothing about another's images, without any no registry is asked,
// and a key that cannot be read keeps what is known (D52).
func TestSignersSeparateOrganizations(t *testing.T) {
	t.Parallel()
	registry := newImages(t, true)
	image, signer := registry.push(t), newSigning(t)
	attach(t, image, signer.bundle(t, statement(t, image.DigestStr(), signPredicate, map[string]any{})))
	p := prover(t, SignerConfig{Name: "release", PublicKey: signer.publicFile(t), Organizations: []int64{2}})
	before := registry.requests.Load()
	for _, p := range []*prove.Prover{p, prover(t)} {
		if _, off, err := p.Prove(t.Context(), 1, image.Context().Name(), image.DigestStr(), true); !off || err != nil {
			t.Errorf("off %t, %v; want off", off, err)
		}
	}
	if n := registry.requests.Load() - before; n != 0 {
		t.Errorf("%d requests without a signer; want none", n)
	}
	if r, off, err := p.Prove(t.Context(), 2, image.Context().Name(), image.DigestStr(), true); off || err != nil || len(r.SignedBy) != 1 {
		t.Errorf("in its own organization: %+v, off %t, %v", r, off, err)
	}
	missing := prover(t, SignerConfig{Name: "release", PublicKey: "file:/does/not/exist"})
	if _, _, err := missing.Prove(t.Context(), 1, image.Context().Name(), image.DigestStr(), true); !fault.Is(err, fault.Unavailable) {
		t.Errorf("with a key that is missing: %v; want it to be tried again", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Prove(ctx, 2, image.Context().Name(), image.DigestStr(), true); !fault.Is(err, fault.Unavailable) {
		t.Errorf("cancelled: %v; want it to be tried again", err)
	}
}

// TestTheDomainAsksForProvenance: over the bus (D52).
func TestTheDomainAsksForProvenance(t *testing.T) {
	t.Parallel()
	registry := newImages(t, false)
	image, signer := registry.push(t), newSigning(t)
	attach(t, image, signer.bundle(t, statement(t, image.DigestStr(), signPredicate, map[string]any{})))
	o, _, _ := followed(t, Config{
		AllowNetworks: []string{registry.host},
		Signers:       []SignerConfig{{Name: "release", PublicKey: signer.publicFile(t), Organizations: []int64{7}}},
	})
	request := &sourcesv1.ProveRequest{OrganizationId: 7, Image: image.Context().Name(), Digest: image.DigestStr()}
	var answer *sourcesv1.ProveResponse
	wait.For(t, "an answer", func() bool {
		var err error
		answer, err = ask(t, o, bus.SourcesProve, request, &sourcesv1.ProveResponse{})
		if err != nil && !fault.Is(err, fault.Unavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	if r, err := provenance.Decode(answer.GetReport()); err != nil || len(r.SignedBy) != 1 {
		t.Errorf("found %+v, %v; want it signed", r, err)
	}
	request.OrganizationId = 8
	if answer, err := ask(t, o, bus.SourcesProve, request, &sourcesv1.ProveResponse{}); err != nil || !answer.GetOff() {
		t.Errorf("another organization: %v, %v; want off", answer, err)
	}
	for _, bad := range []*sourcesv1.ProveRequest{
		{},
		{OrganizationId: 7, Image: image.Context().Name()},
		{OrganizationId: 7, Image: "a b", Digest: image.DigestStr()},
		{OrganizationId: 7, Image: image.Context().Name(), Digest: "sha256:../../x"},
	} {
		if _, err := ask(t, o, bus.SourcesProve, bad, &sourcesv1.ProveResponse{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v; want it refused", bad, err)
		}
	}
}
