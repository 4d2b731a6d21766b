package registry

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
)

// cosign is the program, which `make cosign-test` builds and names.
type cosign struct {
	program, dir string
}

func newCosign(t *testing.T) cosign {
	t.Helper()
	program := os.Getenv("LOCKSTEP_TEST_COSIGN")
	if program == "" {
		t.Skip("found no LOCKSTEP_TEST_COSIGN, the path of cosign; make cosign-test sets it")
	}
	return cosign{program, t.TempDir()}
}

// run runs cosign without a home, so that it finds nothing of this machine's, and answers what it writes.
func (c cosign) run(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), c.program, args...)
	command.Dir = c.dir
	command.Env = []string{"HOME=" + c.dir, "DOCKER_CONFIG=" + c.dir, "COSIGN_PASSWORD=", "PATH=" + os.Getenv("PATH")}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("cosign %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (c cosign) write(t *testing.T, name string, value any) string {
	t.Helper()
	text, is := value.([]byte)
	if !is {
		var err error
		if text, err = json.Marshal(value); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// private is a Fulcio and a time-stamp authority of one's own, as far as cosign asks them: whom a token names is believed.
type private struct {
	url, trusted string
	top          *x509.Certificate
	issuer       *x509.Certificate
	issuerKey    *ecdsa.PrivateKey
	stamper      *x509.Certificate
	stamperKey   *ecdsa.PrivateKey
}

const (
	cosignIssuer  = "https://gitlab.example.com"
	cosignSubject = "ci@example.com"
)

func newPrivate(t *testing.T) *private {
	t.Helper()
	p := &private{}
	top, topKey, err := ca.GenerateRootCa()
	if err != nil {
		t.Fatal(err)
	}
	p.top = top
	if p.issuer, p.issuerKey, err = ca.GenerateFulcioIntermediate(top, topKey); err != nil {
		t.Fatal(err)
	}
	between, betweenKey, err := ca.GenerateTSAIntermediate(top, topKey)
	if err != nil {
		t.Fatal(err)
	}
	if p.stamperKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-time.Minute)
	if p.stamper, err = ca.GenerateTSALeafCert(began, p.stamperKey, between, betweenKey); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	trusted, err := root.NewTrustedRoot(
		root.TrustedRootMediaType01,
		[]root.CertificateAuthority{&root.FulcioCertificateAuthority{
			Root: top, Intermediates: []*x509.Certificate{p.issuer}, URI: p.url, ValidityPeriodStart: from, ValidityPeriodEnd: until,
		}}, nil,
		[]root.TimestampingAuthority{&root.SigstoreTimestampingAuthority{
			Root: top, Intermediates: []*x509.Certificate{between}, Leaf: p.stamper, URI: p.url, ValidityPeriodStart: from, ValidityPeriodEnd: until,
		}}, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	text, err := trusted.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	p.trusted = strings.TrimPrefix(inFile(t, text), "file:")
	return p
}

// ServeHTTP issues a certificate for a public key, or a time stamp.
func (p *private) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		switch r.URL.Path {
		case "/api/v2/signingCert":
			err = p.certify(w, body)
		case "/stamp":
			err = p.stamp(w, body)
		default:
			err = fmt.Errorf("found the path %s", r.URL.Path)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (p *private) certify(w http.ResponseWriter, body []byte) error {
	var asked struct {
		PublicKeyRequest struct {
			PublicKey struct{ Content string }
		}
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return err
	}
	block, _ := pem.Decode([]byte(asked.PublicKeyRequest.PublicKey.Content))
	if block == nil {
		return errors.New("found no public key")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return err
	}
	leaf, err := ca.GenerateLeafCert(cosignSubject, cosignIssuer, time.Now().Add(-time.Minute), publicOnly{public}, p.issuer, p.issuerKey)
	if err != nil {
		return err
	}
	var chain []string
	for _, one := range []*x509.Certificate{leaf, p.issuer, p.top} {
		chain = append(chain, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw})))
	}
	return json.NewEncoder(w).Encode(map[string]any{"signedCertificateEmbeddedSct": map[string]any{"chain": map[string]any{"certificates": chain}}})
}

// publicOnly is the half of a key that an authority sees.
type publicOnly struct{ key crypto.PublicKey }

// Public implements crypto.Signer.
func (p publicOnly) Public() crypto.PublicKey { return p.key }

// Sign implements crypto.Signer.
func (publicOnly) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("found a public key only")
}

func (p *private) stamp(w io.Writer, body []byte) error {
	asked, err := timestamp.ParseRequest(body)
	if err != nil {
		return err
	}
	made := timestamp.Timestamp{
		HashAlgorithm: asked.HashAlgorithm, HashedMessage: asked.HashedMessage, Nonce: asked.Nonce, Time: time.Now(),
		Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, AddTSACertificate: asked.Certificates,
	}
	answer, err := made.CreateResponseWithOpts(p.stamper, p.stamperKey, crypto.SHA256)
	if err != nil {
		return err
	}
	_, err = w.Write(answer)
	return err
}

// identityToken names whom a certificate is for.
func identityToken(t *testing.T) string {
	t.Helper()
	part := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	now := time.Now()
	return part(map[string]any{"alg": "ES256", "typ": "JWT"}) + "." + part(map[string]any{
		"iss": cosignIssuer, "sub": cosignSubject, "email": cosignSubject, "email_verified": true, "aud": "sigstore",
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
	}) + "." + base64.RawURLEncoding.EncodeToString([]byte("signature"))
}

// signer is how cosign signs, and who is to be trusted for it.
func (c cosign) signer(t *testing.T, keyless, bundles bool) ([]string, SignerConfig) {
	t.Helper()
	args := []string{"--allow-http-registry", "-y", fmt.Sprintf("--new-bundle-format=%t", bundles)}
	if !keyless {
		c.run(t, "generate-key-pair")
		return append(args, "--key", "cosign.key", "--use-signing-config=false", "--tlog-upload=false"),
			SignerConfig{Name: "release", PublicKey: "file:" + filepath.Join(c.dir, "cosign.pub"), BuildLevel: 3}
	}
	p := newPrivate(t)
	args = append(args, "--identity-token", c.write(t, "token", []byte(identityToken(t))))
	trust := SignerConfig{Name: "release", TrustedRoot: "file:" + p.trusted, Issuer: cosignIssuer, Subject: "*@example.com", BuildLevel: 3}
	if !bundles {
		return append(args, "--use-signing-config=false", "--tlog-upload=false", "--fulcio-url", p.url, "--timestamp-server-url", p.url+"/stamp",
			"--insecure-skip-verify"), trust
	}
	const since = ",api-version=1,start-time=2024-01-01T00:00:00Z,operator=example.com"
	c.run(t, "signing-config", "create", "--fulcio", "url="+p.url+since, "--tsa", "url="+p.url+"/stamp"+since, "--tsa-config", "EXACT:1", "--out", "signing.json")
	return append(args, "--signing-config", "signing.json", "--trusted-root", p.trusted), trust
}

// TestFactsComeFromWhatCosignSigns: what cosign signs and attests becomes facts, with a key and with certificates of a private root, in a
// registry with the referrers API and in one without, as bundles and in the older tag scheme. Another image has none of them, and a signer
// who is not configured states nothing (D52).
func TestFactsComeFromWhatCosignSigns(t *testing.T) {
	t.Parallel()
	newCosign(t)
	for _, keyless := range []bool{false, true} {
		for _, referrers := range []bool{true, false} {
			for _, bundles := range []bool{true, false} {
				t.Run(fmt.Sprintf("keyless %t, referrers %t, bundles %t", keyless, referrers, bundles), func(t *testing.T) {
					t.Parallel()
					c, images := newCosign(t), newImages(t, referrers)
					image, other := images.push(t), images.push(t)
					args, trust := c.signer(t, keyless, bundles)
					c.run(t, slices.Concat([]string{"sign"}, args, []string{image.String()})...)
					for kind, predicate := range map[string]any{
						"slsaprovenance1": slsa(), "cyclonedx": bom(map[string]any{"name": "openssl", "version": "3.0.1"}),
						"https://in-toto.io/attestation/vulns/v0.1": scanned("2026-11-20T10:00:00Z", map[string]string{"CVE-1": "critical"}),
					} {
						path := c.write(t, "predicate.json", predicate)
						c.run(t, slices.Concat([]string{"attest"}, args, []string{"--type", kind, "--predicate", path, image.String()})...)
					}
					p := prover(t, trust)
					r := proved(t, p, image)
					if got := refusals(r); len(got) > 0 || len(r.Evidence) != 4 {
						t.Fatalf("found %d pieces of evidence, refused %q; expected 4", len(r.Evidence), got)
					}
					for _, e := range r.Evidence {
						if e.Signer != "release" || keyless != (e.Identity == cosignIssuer+" "+cosignSubject) || keyless != (e.SignedAt != nil) {
							t.Errorf("evidence %+v", e)
						}
					}
					if !slices.Equal(r.SignedBy, []string{"release"}) || !slices.Equal(r.Builders, []string{"https://ci.example.com/builder"}) || r.BuildLevel != 3 {
						t.Errorf("signed by %q, built by %q at level %d", r.SignedBy, r.Builders, r.BuildLevel)
					}
					if len(r.Contents.Components) != 1 || r.Contents.Components[0].Name != "openssl" || !slices.Equal(r.Vulnerabilities.Critical, []string{"CVE-1"}) {
						t.Errorf("components %+v, vulnerabilities %+v", r.Contents.Components, r.Vulnerabilities)
					}
					if r := proved(t, p, other); len(r.Evidence) != 0 || len(r.SignedBy) != 0 {
						t.Errorf("an image that is not signed has %+v", r)
					}
					stranger := trust
					if stranger.Subject = "*@elsewhere.example"; !keyless {
						stranger = SignerConfig{Name: "release", PublicKey: newSigning(t).publicFile(t)}
					}
					if r := proved(t, prover(t, stranger), image); len(r.SignedBy) != 0 || len(refusals(r)) != 4 {
						t.Errorf("found evidence of another signer: %+v", r)
					}
				})
			}
		}
	}
}

// TestCosignVerifiesWhatTestsSign: what the other tests sign is what cosign accepts, so that they speak of real signatures (D52).
func TestCosignVerifiesWhatTestsSign(t *testing.T) {
	t.Parallel()
	c, images := newCosign(t), newImages(t, true)
	image := images.push(t)
	key := newSigning(t)
	attach(t, image, key.bundle(t, statement(t, image.DigestStr(), signPredicate, map[string]any{})))
	attach(t, image, key.bundle(t, statement(t, image.DigestStr(), bomPredicate, bom(map[string]any{"name": "openssl", "version": "3.0.1"}))))
	public := strings.TrimPrefix(key.publicFile(t), "file:")
	trusted := []string{"--key", public, "--insecure-ignore-tlog=true", "--allow-http-registry", image.String()}
	if out := c.run(t, append([]string{"verify"}, trusted...)...); !strings.Contains(out, image.DigestStr()) {
		t.Errorf("cosign verify says %s", out)
	}
	if out := c.run(t, append([]string{"verify-attestation", "--type", "cyclonedx"}, trusted...)...); !strings.Contains(out, "in-toto") {
		t.Errorf("cosign verify-attestation says %s", out)
	}
}
