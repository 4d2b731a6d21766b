package registry

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
)

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// The predicates that tests attest.
const (
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
	slsaPredicate = "https://slsa.dev/provenance/v1"
	bomPredicate  = "https://cyclonedx.org/bom"
	spdxPredicate = "https://spdx.dev/Document"
	scanPredicate = "https://in-toto.io/attestation/vulns/v0.1"
	vexPredicate  = "https://openvex.dev/ns/v0.2.0"
)

// signing signs as a holder of a key, or as one of a certificate with a time stamp.
type signing struct {
	key   *ecdsa.PrivateKey
	leaf  *x509.Certificate
	stamp func(signature []byte) ([]byte, error)
}

func newSigning(t *testing.T) signing {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signing{key: key}
}

// publicFile is a reference to the public key in a file.
func (s signing) publicFile(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return inFile(t, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func inFile(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trust")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

func (s signing) sign(t *testing.T, message []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(message)
	made, err := s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

const statementType = "application/vnd.in-toto+json"

// statement is an in-toto statement about a digest.
func statement(t *testing.T, digest, predicateType string, predicate any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       []any{map[string]any{"name": "app", "digest": map[string]string{"sha256": strings.TrimPrefix(digest, "sha256:")}}},
		"predicateType": predicateType, "predicate": predicate,
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// preAuthentication is what the signature of an envelope is over (DSSE).
func preAuthentication(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(statementType), statementType, len(payload), payload)
}

// bundle is an attestation as a Sigstore bundle.
func (s signing) bundle(t *testing.T, payload []byte) []byte {
	t.Helper()
	made := s.sign(t, preAuthentication(payload))
	material := &protobundle.VerificationMaterial{
		Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}},
	}
	if s.leaf != nil {
		material.Content = &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: s.leaf.Raw}}
	}
	if s.stamp != nil {
		stamp, err := s.stamp(made)
		if err != nil {
			t.Fatal(err)
		}
		material.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamp}},
		}
	}
	text, err := protojson.Marshal(&protobundle.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json", VerificationMaterial: material,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: payload, PayloadType: statementType, Signatures: []*protodsse.Signature{{Sig: made}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// annotations are those of the older tag scheme.
func (s signing) annotations(t *testing.T, signature []byte) map[string]string {
	t.Helper()
	a := map[string]string{}
	if s.leaf != nil {
		a["dev.sigstore.cosign/certificate"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.leaf.Raw}))
	}
	if s.stamp != nil {
		stamp, err := s.stamp(signature)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string][]byte{"SignedRFC3161Timestamp": stamp})
		if err != nil {
			t.Fatal(err)
		}
		a["dev.sigstore.cosign/rfc3161timestamp"] = string(text)
	}
	return a
}

// images is a registry with images.
type images struct {
	host     string
	requests atomic.Int64
	// refuses has requests whose path ends with it answered with a status.
	refuses atomic.Pointer[refusal]
}

// refusal is the end of a path, and how requests for it are answered.
type refusal struct {
	path   string
	status int
}

func newImages(t *testing.T, referrers bool) *images {
	t.Helper()
	i := &images{}
	handler := ociregistry.New(
		ociregistry.WithReferrersSupport(referrers), ociregistry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)),
	)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.requests.Add(1)
		if refused := i.refuses.Load(); refused != nil && strings.HasSuffix(r.URL.Path, refused.path) {
			w.WriteHeader(refused.status)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	i.host = strings.TrimPrefix(s.URL, "http://")
	return i
}

// push pushes an image.
func (i *images) push(t *testing.T) ociname.Digest {
	t.Helper()
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	reference, err := ociname.NewDigest(i.host + "/shop/api@" + digest.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, image); err != nil {
		t.Fatal(err)
	}
	return reference
}

// typed gives a manifest the field that says what it is.
type typed struct{ v1.Image }

func (i typed) RawManifest() ([]byte, error) {
	raw, err := i.Image.RawManifest()
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	m["artifactType"] = bundleType
	return json.Marshal(m)
}

func (i typed) Digest() (v1.Hash, error) {
	raw, err := i.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	h, _, err := v1.SHA256(bytes.NewReader(raw))
	return h, err
}

func (i typed) Size() (int64, error) {
	raw, err := i.RawManifest()
	return int64(len(raw)), err
}

// attach attaches a bundle to an image as a referrer, as cosign 3 does.
func attach(t *testing.T, image ociname.Digest, content []byte) {
	t.Helper()
	subject, err := remote.Head(image)
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := mutate.Append(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.oci.empty.v1+json"),
		mutate.Addendum{Layer: static.NewLayer(content, bundleType)},
	)
	if err != nil {
		t.Fatal(err)
	}
	whole := typed{mutate.Subject(artifact, v1.Descriptor{
		MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size,
	}).(v1.Image)}
	digest, err := whole.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(image.Context().Digest(digest.String()), whole); err != nil {
		t.Fatal(err)
	}
}

// layer is one of an artifact in the older tag scheme.
type layer struct {
	content     []byte
	mediaType   types.MediaType
	annotations map[string]string
}

// tag puts an artifact at the tag that stands for an image, as cosign 2 does: sha256-HEX.sig or .att.
func tag(t *testing.T, image ociname.Digest, suffix string, layers ...layer) {
	t.Helper()
	artifact := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, l := range layers {
		var err error
		added := mutate.Addendum{Layer: static.NewLayer(l.content, l.mediaType), Annotations: l.annotations}
		if artifact, err = mutate.Append(artifact, added); err != nil {
			t.Fatal(err)
		}
	}
	if err := remote.Write(image.Context().Tag(strings.Replace(image.DigestStr(), ":", "-", 1)+suffix), artifact); err != nil {
		t.Fatal(err)
	}
}

// plain is a signature in the older scheme: of what says that it is about a digest.
func (s signing) plain(t *testing.T, digest string) layer {
	t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, digest)
	made := s.sign(t, payload)
	annotations := s.annotations(t, made)
	annotations["dev.cosignproject.cosign/signature"] = base64.StdEncoding.EncodeToString(made)
	return layer{payload, prove.MediaTypeSimpleSigning, annotations}
}

// envelope is an attestation in the older scheme.
func (s signing) envelope(t *testing.T, payload []byte) layer {
	t.Helper()
	made := s.sign(t, preAuthentication(payload))
	text, err := json.Marshal(map[string]any{
		"payloadType": statementType, "payload": payload, "signatures": []any{map[string]any{"keyid": "", "sig": made}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return layer{text, prove.MediaTypeEnvelope, s.annotations(t, made)}
}

// privateRoot is a certificate authority and a time-stamp authority of one's own.
type privateRoot struct {
	*ca.VirtualSigstore
	file         string
	intermediate *x509.Certificate
	key          *ecdsa.PrivateKey
}

func newPrivateRoot(t *testing.T) privateRoot {
	t.Helper()
	virtual, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	top, topKey, err := ca.GenerateRootCa()
	if err != nil {
		t.Fatal(err)
	}
	r := privateRoot{VirtualSigstore: virtual}
	if r.intermediate, r.key, err = ca.GenerateFulcioIntermediate(top, topKey); err != nil {
		t.Fatal(err)
	}
	authority := &root.FulcioCertificateAuthority{
		Root: top, Intermediates: []*x509.Certificate{r.intermediate}, URI: "https://fulcio.example.com",
		ValidityPeriodStart: time.Now().Add(-5 * time.Hour), ValidityPeriodEnd: time.Now().Add(time.Hour),
	}
	trusted, err := root.NewTrustedRoot(
		root.TrustedRootMediaType01, []root.CertificateAuthority{authority}, nil, virtual.TimestampingAuthorities(), nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	text, err := trusted.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	r.file = inFile(t, text)
	return r
}

// as signs with a certificate for an identity, which is valid for ten minutes from a time on.
func (r privateRoot) as(t *testing.T, subject, issuer string, from time.Time) signing {
	t.Helper()
	s := newSigning(t)
	var err error
	if s.leaf, err = ca.GenerateLeafCert(subject, issuer, from, s.key, r.intermediate, r.key); err != nil {
		t.Fatal(err)
	}
	s.stamp = r.TimestampResponse
	return s
}
