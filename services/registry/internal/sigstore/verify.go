// Package sigstore verifies signatures and attestations of images with configured signers: public keys, and certificates of a configured
// root for configured identities. It asks nobody: everything that it needs is configured or in the evidence.
package sigstore

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
)

// Signer is who is trusted to state something about images.
type Signer struct {
	Name string
	// Key returns a public key in PEM; nil for a signer with certificates.
	Key func(context.Context) (string, error)
	// Root returns a Sigstore trusted root as JSON: certificate authorities, logs and time-stamp authorities. Its certificates count for
	// Issuer and Subject, a pattern in which * stands for any characters.
	Root            func(context.Context) (string, error)
	Issuer, Subject string
	// Kinds are what it may state; none means everything.
	Kinds []prove.Kind
	// BuildLevel is the SLSA level of the provenance that it signs; 0 for none.
	BuildLevel int
	// Organizations are those whose images it signs; none means all.
	Organizations []int64
}

// serves reports whether it signs for an organization.
func (s Signer) serves(organization int64) bool {
	return len(s.Organizations) == 0 || slices.Contains(s.Organizations, organization)
}

// Signers verify what is attached to images. They are safe for concurrent use.
type Signers struct{ all []Signer }

var _ prove.Verifiers = Signers{}

// New returns the verifiers of signers.
func New(all []Signer) Signers { return Signers{all} }

// Trusts implements prove.Verifiers.
func (s Signers) Trusts(organization int64) bool {
	return slices.ContainsFunc(s.all, func(one Signer) bool { return one.serves(organization) })
}

// Verify implements prove.Verifiers. The first signer counts that verifies the blob and may state what it states.
func (s Signers) Verify(ctx context.Context, organization int64, digest string, a prove.Attached) (prove.Statement, error) {
	raw, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		return prove.Statement{}, fault.Because(err, fault.Invalid, "found the digest %.100q; expected sha256", digest)
	}
	evidence, err := read(a)
	if err != nil {
		return prove.Statement{}, err
	}
	var refused []error
	for _, one := range s.all {
		if !one.serves(organization) {
			continue
		}
		statement, err := one.verify(ctx, digest, raw, evidence)
		if fault.Is(err, fault.Unavailable) {
			return prove.Statement{}, err
		}
		if err == nil {
			return statement, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", one.Name, err))
	}
	return prove.Statement{}, fmt.Errorf("no configured signer verifies it: %w", errors.Join(refused...))
}

// evidence is a blob that has been read, and not verified.
type evidence struct {
	bundle *bundle.Bundle
	// payload is what a plain signature of the older scheme is over; nil for attestations and bundles.
	payload []byte
}

// read understands a blob.
func read(a prove.Attached) (evidence, error) {
	switch a.Form() {
	case "bundle":
		var b bundle.Bundle
		if err := b.UnmarshalJSON(a.Content); err != nil {
			return evidence{}, fault.Because(err, fault.Invalid, "found a bundle that cannot be read")
		}
		return evidence{bundle: &b}, nil
	case "cosign-signature", "cosign-attestation":
		return readTagged(a)
	default:
		return evidence{}, fault.New(fault.Invalid, "found the media type %.200q; expected a signature or an attestation", a.MediaType)
	}
}

func (s Signer) verify(ctx context.Context, digest string, raw []byte, e evidence) (prove.Statement, error) {
	// Before anything is verified: a bundle with a certificate is not for a key, and the other way round.
	if keyed := e.bundle.GetVerificationMaterial().GetPublicKey() != nil; keyed != (s.Key != nil) {
		return prove.Statement{}, fmt.Errorf("it is not signed by a signer of this kind")
	}
	verifier, options, err := s.verifier(ctx)
	if err != nil {
		return prove.Statement{}, fault.Because(err, fault.Unavailable, "the signer %s is not usable", s.Name)
	}
	artifact := verify.WithArtifactDigest("sha256", raw)
	if e.payload != nil {
		artifact = verify.WithArtifact(strings.NewReader(string(e.payload)))
	}
	result, err := verifier.Verify(e.bundle, verify.NewPolicy(artifact, options...))
	if err != nil {
		return prove.Statement{}, err
	}
	if e.payload != nil {
		if err := concerns(e.payload, digest); err != nil {
			return prove.Statement{}, err
		}
	} else if result.Statement == nil { // the signature is over the manifest itself
		if e.bundle.GetMessageSignature() == nil {
			return prove.Statement{}, errors.New("it states nothing")
		}
	}
	statement := prove.Statement{Signer: s.Name, BuildLevel: s.BuildLevel}
	if c := result.Signature.Certificate; c != nil {
		statement.Identity = c.Issuer + " " + c.SubjectAlternativeName
	}
	for _, t := range result.VerifiedTimestamps {
		if at := t.Timestamp.UTC().Truncate(time.Second); t.Type != "CurrentTime" && (statement.SignedAt == nil || at.Before(*statement.SignedAt)) {
			statement.SignedAt = &at
		}
	}
	if result.Statement != nil {
		statement.PredicateType = result.Statement.GetPredicateType()
		if statement.Predicate, err = protojson.Marshal(result.Statement.GetPredicate()); err != nil {
			return statement, fmt.Errorf("read the predicate: %w", err)
		}
	}
	if kind := prove.KindOf(statement.PredicateType); len(s.Kinds) > 0 && !slices.Contains(s.Kinds, kind) {
		return prove.Statement{}, fmt.Errorf("this signer may not state it: found %.200q; expected one of %v", statement.PredicateType, s.Kinds)
	}
	return statement, nil
}

// verifier is what verifies the signer's signatures. Keys and roots are read each time, so that they can be replaced
// while the service runs.
func (s Signer) verifier(ctx context.Context) (*verify.Verifier, []verify.PolicyOption, error) {
	if s.Key != nil {
		text, err := s.Key(ctx)
		if err != nil {
			return nil, nil, err
		}
		key, err := publicKey(text)
		if err != nil {
			return nil, nil, err
		}
		trusted := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
			return root.NewExpiringKey(key, time.Time{}, time.Time{}), nil
		})
		// What is signed with a key of one's own has no time, and needs none: the key is valid while it is configured.
		v, err := verify.NewVerifier(trusted, verify.WithNoObserverTimestamps())
		return v, []verify.PolicyOption{verify.WithKey()}, err
	}
	text, err := s.Root(ctx)
	if err != nil {
		return nil, nil, err
	}
	trusted, err := root.NewTrustedRootFromJSON([]byte(text))
	if err != nil {
		return nil, nil, fmt.Errorf("read the trusted root: %w", err)
	}
	v, err := verify.NewVerifier(trusted, demands(trusted)...)
	if err != nil {
		return nil, nil, err
	}
	identity, err := verify.NewShortCertificateIdentity(s.Issuer, "", "", subjectPattern(s.Subject))
	return v, []verify.PolicyOption{verify.WithCertificateIdentity(identity)}, err
}

// demands are what a signature has to have: everything that the root has the means to verify. Without log and time-stamp authority the
// certificate has to be valid now.
func demands(trusted *root.TrustedRoot) []verify.VerifierOption {
	var all []verify.VerifierOption
	logs, stamps := len(trusted.RekorLogs()) > 0, len(trusted.TimestampingAuthorities()) > 0
	if logs {
		all = append(all, verify.WithTransparencyLog(1))
	}
	if len(trusted.CTLogs()) > 0 {
		all = append(all, verify.WithSignedCertificateTimestamps(1))
	}
	if logs || stamps {
		return append(all, verify.WithObserverTimestamps(1))
	}
	return append(all, verify.WithCurrentTime())
}

// subjectPattern is a regular expression for the whole subject.
func subjectPattern(pattern string) string {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return "^" + strings.Join(parts, ".*") + "$"
}

func publicKey(text string) (signature.Verifier, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("found no PEM; expected a public key in PEM, such as cosign.pub")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the public key: %w", err)
	}
	verifier, err := signature.LoadDefaultVerifier(key)
	if err != nil {
		return nil, fmt.Errorf("use the public key: %w", err)
	}
	return verifier, nil
}

// concerns is why the payload of a plain signature is not about a digest: a signature is valid wherever it is copied to.
func concerns(payload []byte, digest string) error {
	var p struct {
		Critical struct {
			Type  string `json:"type"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return fmt.Errorf("found a payload that cannot be read: %w", err)
	}
	if p.Critical.Image.Digest != digest {
		return fmt.Errorf("found a signature of %.100q; expected one of %s", p.Critical.Image.Digest, digest)
	}
	return nil
}
