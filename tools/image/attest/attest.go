// Package attest creates the signature and the provenance of an image: in-toto statements, signed with the user's key, in bundles of
// Sigstore that refer to the image in the form that cosign reads. It needs no network and no transparency log, and the same key and image
// give the same bundles.
//
// Such a bundle is a JSON envelope with the name of a key: it is encoded here and not with sigstore-go, whose hundred modules, for unused
// logs and certificates, would be in the workspace of every service. cosign verifies the result (README).
package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The types of statements and manifests.
const (
	// BundleType is the media type of a bundle, and the artifact type of a manifest with one.
	BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// SignatureType is the predicate of a signature: that the image is signed, without further claims.
	SignatureType = "https://sigstore.dev/cosign/sign/v1"
	// ProvenanceType is the predicate of a provenance.
	ProvenanceType = "https://slsa.dev/provenance/v1"

	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
)

// Key signs.
type Key struct {
	private *ecdsa.PrivateKey
	public  []byte
}

// ParseKey reads a private key on the curve P-256 from PEM, as written by `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`.
// The errors reveal nothing of its content.
func ParseKey(text string) (*Key, error) {
	expected := errors.New("expected a private key on the curve P-256 in PEM, without a passphrase")
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, fmt.Errorf("found no PEM; %w", expected)
	}
	var parsed any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("found PEM of type %q; %w", block.Type, expected)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("found another kind of key; %w", expected)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode the public key: %w", err)
	}
	return &Key{private: key, public: public}, nil
}

// PublicKey returns the verification key in PEM.
func (k *Key) PublicKey() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: k.public})
}

// Build describes how an image was built.
type Build struct {
	// Name is the image's name, Repository where it is published; both are informational.
	Name, Repository string
	// Version and Architecture were requested.
	Version, Architecture string
	// Source and Commit are what it was built from; Go is the compiler's version.
	Source, Commit, Go string
	// Builder is the URL of the builder, which the verifier trusts.
	Builder string
}

// provenance returns the predicate of SLSA's provenance v1. It has no time, so it is reproducible like the image.
func (b Build) provenance() map[string]any {
	return map[string]any{
		"buildDefinition": map[string]any{
			"buildType":          b.Source + "/tree/main/tools/image",
			"externalParameters": map[string]any{"image": b.Name, "version": b.Version, "architecture": b.Architecture, "source": b.Source},
			"resolvedDependencies": []any{
				map[string]any{"uri": "git+" + b.Source, "digest": map[string]string{"gitCommit": b.Commit}},
				map[string]any{"uri": "pkg:golang/stdlib@" + b.Go, "name": "go"},
			},
		},
		"runDetails": map[string]any{"builder": map[string]any{"id": b.Builder}},
	}
}

// Image creates the manifests that refer to an image: its signature and its provenance.
func Image(image v1.Image, b Build, key *Key) ([]v1.Image, error) {
	var all []v1.Image
	for _, one := range []struct {
		kind      string
		predicate any
	}{{SignatureType, map[string]any{}}, {ProvenanceType, b.provenance()}} {
		a, err := attestation(image, b.Repository, one.kind, one.predicate, key)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", one.kind, b.Name, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// attestation creates a manifest that refers to the image and contains the bundle.
func attestation(image v1.Image, repository, kind string, predicate any, key *Key) (v1.Image, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	size, err := image.Size()
	if err != nil {
		return nil, fmt.Errorf("size: %w", err)
	}
	mediaType, err := image.MediaType()
	if err != nil {
		return nil, fmt.Errorf("media type: %w", err)
	}
	statement, err := json.Marshal(map[string]any{
		"_type":         statementType,
		"subject":       []any{map[string]any{"name": repository, "digest": map[string]string{digest.Algorithm: digest.Hex}}},
		"predicateType": kind, "predicate": predicate,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the statement: %w", err)
	}
	bundle, err := key.bundle(statement)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.oci.empty.v1+json")
	if artifact, err = mutate.Append(artifact, mutate.Addendum{Layer: static.NewLayer(bundle, BundleType)}); err != nil {
		return nil, fmt.Errorf("append the bundle: %w", err)
	}
	annotated, ok := mutate.Annotations(artifact, map[string]string{
		"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": kind,
	}).(v1.Image)
	if !ok {
		return nil, errors.New("an image with annotations is none")
	}
	referring, ok := mutate.Subject(annotated, v1.Descriptor{MediaType: mediaType, Digest: digest, Size: size}).(v1.Image)
	if !ok {
		return nil, errors.New("an image with a subject is none")
	}
	return typed{referring}, nil
}

// bundle signs a statement.
func (k *Key) bundle(statement []byte) ([]byte, error) {
	// The signed message is the envelope's type and content with their lengths (DSSE).
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement)
	sum := sha256.Sum256(message)
	signature, err := k.private.Sign(nil, sum[:], crypto.SHA256) // deterministic: RFC 6979
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	hint := sha256.Sum256(k.public)
	bundle, err := json.Marshal(map[string]any{
		"mediaType":            BundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": base64.StdEncoding.EncodeToString(hint[:])}},
		"dsseEnvelope": map[string]any{
			"payload": statement, "payloadType": payloadType, // encoding/json encodes bytes in base64
			"signatures": []any{map[string]any{"sig": signature}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the bundle: %w", err)
	}
	return bundle, nil
}

// typed is a manifest with the field artifactType, which go-containerregistry cannot set and cosign requires.
type typed struct{ v1.Image }

// RawManifest implements v1.Image.
func (t typed) RawManifest() ([]byte, error) {
	raw, err := t.Image.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m["artifactType"] = BundleType
	if raw, err = json.Marshal(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return raw, nil
}

// Digest implements v1.Image.
func (t typed) Digest() (v1.Hash, error) {
	raw, err := t.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	sum := sha256.Sum256(raw)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}, nil
}

// Size implements v1.Image.
func (t typed) Size() (int64, error) {
	raw, err := t.RawManifest()
	return int64(len(raw)), err
}
