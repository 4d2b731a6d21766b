package attest_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/lockstep-cd/lockstep/tools/image/assemble"
	"github.com/lockstep-cd/lockstep/tools/image/attest"
)

// pemOf returns a private key in PEM.
func pemOf(t *testing.T, key any) string {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func build() attest.Build {
	return attest.Build{
		Name: "relay", Repository: "registry.example.com/lockstep/relay", Version: "v1.2.3", Architecture: "amd64",
		Source: "https://example.com/lockstep", Commit: strings.Repeat("a", 40), Go: "go1.26.8", Builder: "https://example.com/release",
	}
}

// statement verifies the bundle of a manifest with a public key, and returns the signed statement.
func statement(t *testing.T, of v1.Image, public *ecdsa.PublicKey) (parsed map[string]any, ok bool) {
	t.Helper()
	layers, err := of.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("found %d layers, %v", len(layers), err)
	}
	blob, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	var bundle struct {
		MediaType    string
		DSSEEnvelope struct {
			Payload     []byte
			PayloadType string
			Signatures  []struct{ Sig []byte }
		}
	}
	if err := json.NewDecoder(blob).Decode(&bundle); err != nil {
		t.Fatal(err)
	}
	e := bundle.DSSEEnvelope
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload))
	if bundle.MediaType != attest.BundleType || len(e.Signatures) != 1 {
		t.Fatalf("found %+v", bundle)
	}
	if err := json.Unmarshal(e.Payload, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed, ecdsa.VerifyASN1(public, sum[:], e.Signatures[0].Sig)
}

// TestAnImageIsPublishedWithItsSignatureAndProvenance: a registry returns both for the image's digest, with the build's details.
func TestAnImageIsPublishedWithItsSignatureAndProvenance(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true),
		registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	private := newKey(t, elliptic.P256())
	key, err := attest.ParseKey(pemOf(t, private))
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := attest.Image(image, build(), key)
	if err != nil {
		t.Fatal(err)
	}
	repository := strings.TrimPrefix(server.URL, "http://") + "/lockstep/relay"
	if err := attest.Push(t.Context(), repository, "v1.2.3", image, referrers); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(repository + ":v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	published, err := remote.Head(tag)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Referrers(tag.Context().Digest(published.Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	for _, m := range manifests.Manifests {
		artifact, err := remote.Image(tag.Context().Digest(m.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := artifact.RawManifest()
		if err != nil || !bytes.Contains(raw, []byte(`"artifactType":"`+attest.BundleType+`"`)) {
			t.Errorf("found the manifest %s, %v, expected that its artifact type is a bundle", raw, err)
		}
		s, ok := statement(t, artifact, &private.PublicKey)
		if !ok {
			t.Errorf("%s: the signature does not verify", s["predicateType"])
		}
		if _, ok := statement(t, artifact, &newKey(t, elliptic.P256()).PublicKey); ok {
			t.Errorf("%s: verifies with another key", s["predicateType"])
		}
		want := []any{map[string]any{"name": "registry.example.com/lockstep/relay", "digest": map[string]any{"sha256": published.Digest.Hex}}}
		if diff := cmp.Diff(want, s["subject"]); diff != "" {
			t.Errorf("subject (-want +got):\n%s", diff)
		}
		kind, _ := s["predicateType"].(string)
		found[kind] = s["predicate"]
	}
	want := map[string]any{
		attest.SignatureType: map[string]any{},
		attest.ProvenanceType: map[string]any{
			"buildDefinition": map[string]any{
				"buildType": "https://example.com/lockstep/tree/main/tools/image",
				"externalParameters": map[string]any{
					"image": "relay", "version": "v1.2.3", "architecture": "amd64",
					"source": "https://example.com/lockstep",
				},
				"resolvedDependencies": []any{
					map[string]any{"uri": "git+https://example.com/lockstep", "digest": map[string]any{"gitCommit": strings.Repeat("a", 40)}},
					map[string]any{"uri": "pkg:golang/stdlib@go1.26.8", "name": "go"},
				},
			},
			"runDetails": map[string]any{"builder": map[string]any{"id": "https://example.com/release"}},
		},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("what refers to the image (-want +got):\n%s", diff)
	}
}

// TestALayoutHasTheImageFirst: tools that know nothing of referrers push the first manifest. The same key gives the same signatures.
func TestALayoutHasTheImageFirst(t *testing.T) {
	t.Parallel()
	key, err := attest.ParseKey(pemOf(t, newKey(t, elliptic.P256())))
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	var manifests [2][]v1.Descriptor
	for i := range manifests {
		referrers, err := attest.Image(image, build(), key)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "layout")
		digest, err := assemble.Write(dir, image, referrers...)
		if err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		m, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Manifests) != 3 || m.Manifests[0].Digest.String() != digest {
			t.Errorf("found %+v, expected %s and two manifests that refer to it", m.Manifests, digest)
		}
		manifests[i] = m.Manifests
	}
	if diff := cmp.Diff(manifests[0], manifests[1]); diff != "" {
		t.Errorf("made again (-first +second):\n%s", diff)
	}
}

// TestKeys: an unsuitable key is refused, without revealing its content.
func TestKeys(t *testing.T) {
	t.Parallel()
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"none": "", "a password": "hunter2", "another curve": pemOf(t, newKey(t, elliptic.P384())), "another kind": pemOf(t, edwards),
		"a public key":        string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})),
		"one with passphrase": string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: []byte("x")})),
	} {
		if _, err := attest.ParseKey(text); err == nil || !strings.Contains(err.Error(), "expected a private key on the curve P-256") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: found %v, expected it refused", name, err)
		}
	}
	private := newKey(t, elliptic.P256())
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	first, err := attest.ParseKey(pemOf(t, private))
	if err != nil {
		t.Fatal(err)
	}
	second, err := attest.ParseKey(string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})))
	if err != nil || !bytes.Equal(first.PublicKey(), second.PublicKey()) {
		t.Errorf("both forms of a key: %v", err)
	}
}
