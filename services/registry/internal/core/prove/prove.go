// Package prove makes facts of what is attached to images: verified signatures and attestations become a report (D52).
//
// It verifies nothing itself and asks no registry: adapters do both.
package prove

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
)

// Attached is a blob that is attached to an image, as its registry has it: nothing of it is verified.
type Attached struct {
	// Digest is that of the blob, MediaType and Annotations are those of its layer.
	Digest, MediaType string
	Annotations       map[string]string
	Content           []byte
	// Problem is why it was not read; empty if it was.
	Problem string
}

// Form is how a blob was attached; empty for one that is neither a signature nor an attestation.
func (a Attached) Form() string {
	switch a.MediaType {
	case MediaTypeSimpleSigning:
		return "cosign-signature"
	case MediaTypeEnvelope:
		return "cosign-attestation"
	}
	if IsBundle(a.MediaType) {
		return "bundle"
	}
	return ""
}

// The media types of signatures and attestations in the older tag scheme.
const (
	MediaTypeSimpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	MediaTypeEnvelope      = "application/vnd.dsse.envelope.v1+json"
)

// IsBundle reports whether a media type is that of a Sigstore bundle.
func IsBundle(mediaType string) bool {
	return slices.Contains([]string{
		"application/vnd.dev.sigstore.bundle+json;version=0.1", "application/vnd.dev.sigstore.bundle+json;version=0.2",
		"application/vnd.dev.sigstore.bundle+json;version=0.3", "application/vnd.dev.sigstore.bundle.v0.3+json",
	}, mediaType)
}

// Attachments reads what is attached to images.
type Attachments interface {
	// Attached returns the signatures and attestations of an image, with the accounts of an organization; more reports
	// whether there are others, which were not read. None is no error; an error has a class, as that of Registries.Digest.
	Attached(ctx context.Context, organization int64, image, digest string) (all []Attached, more bool, err error)
	// Claimed returns what the image says of its own source, and its annotations and labels; empty for nothing. An error that is Invalid
	// means that nothing can be read of it; after every other one the next attempt may succeed.
	Claimed(ctx context.Context, organization int64, image, digest string) (provenance.Claim, map[string]string, error)
}

// Statement is what a configured signer has stated about an image.
type Statement struct {
	// Signer is its configured name, Identity what its certificate says of it, SignedAt when, if that is confirmed.
	Signer, Identity string
	SignedAt         *time.Time
	// BuildLevel is the SLSA level that its provenance has.
	BuildLevel int
	// PredicateType is empty for a plain signature.
	PredicateType string
	Predicate     json.RawMessage
}

// Verifiers verify blobs.
type Verifiers interface {
	// Trusts reports whether any signer is configured for an organization.
	Trusts(organization int64) bool
	// Verify returns what a signer of the organization states in a blob about the image with a digest. An error that is Unavailable
	// concerns the configured signers; every other one is why the blob is refused.
	Verify(ctx context.Context, organization int64, digest string, a Attached) (Statement, error)
}

// Prover finds out what is known about where images come from (D52).
type Prover struct {
	attachments Attachments
	verifiers   Verifiers
	// busy bounds how many images are looked at together: what is attached to one may take 32 MiB.
	busy chan struct{}
}

// maxProving is how many images are looked at together.
const maxProving = 2

// NewProver looks at images.
func NewProver(a Attachments, v Verifiers) *Prover {
	return &Prover{attachments: a, verifiers: v, busy: make(chan struct{}, maxProving)}
}

// Prove returns what verified evidence states about an image. off reports whether no signer is configured for the
// organization; then no registry is asked. What the image claims is read as well where claims is true, and fails nothing.
func (p *Prover) Prove(
	ctx context.Context, organization int64, image, digest string, claims bool,
) (report provenance.Report, off bool, err error) {
	if !p.verifiers.Trusts(organization) {
		return report, true, nil
	}
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return report, false, fault.New(fault.Unavailable, "too many images are looked at")
	}
	attached, more, err := p.attachments.Attached(ctx, organization, image, digest)
	if err != nil {
		return report, false, err
	}
	var excluded []string
	report.Truncated = more
	for _, a := range attached {
		e := provenance.Evidence{Digest: a.Digest, Form: a.Form(), Problem: a.Problem}
		if a.Problem == "" {
			s, err := p.verifiers.Verify(ctx, organization, digest, a)
			switch {
			case fault.Is(err, fault.Unavailable):
				return report, false, err
			case err != nil:
				e.Problem = err.Error()
			default:
				e.Signer, e.Identity, e.SignedAt, e.PredicateType = s.Signer, s.Identity, s.SignedAt, s.PredicateType
				if err := record(&report, s, digest, &excluded); err != nil {
					e.Problem = err.Error()
				}
			}
		}
		report.Evidence = append(report.Evidence, e)
	}
	exclude(report.Vulnerabilities, excluded)
	if claims {
		claim, labels, err := p.attachments.Claimed(ctx, organization, image, digest)
		if fault.Is(err, fault.Invalid) { // what cannot be read says the same forever
			err, labels = nil, map[string]string{}
		}
		if err == nil {
			report.Claimed, report.Labels = &claim, labels
		}
	}
	report.Bound()
	return report, false, nil
}
