package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
)

// The bounds of what is read of one image: a registry may answer anything, and everybody who may push to a repository may attach to it.
const (
	// maxArtifacts is how many manifests that refer to an image are read, and maxLayers how many layers of each.
	maxArtifacts = 60
	maxLayers    = 50
	// maxAttached is how many blobs are read of all of them, maxBlob the size of one in bytes, and maxBlobs that of all.
	maxAttached = 100
	maxBlob     = 7 << 20
	maxBlobs    = 32 << 20
)

var _ prove.Attachments = (*Registries)(nil)

// Attached implements prove.Attachments: by OCI referrers, with the tag that stands in for them where the registry has no such API, and by
// cosign's older tags.
func (r *Registries) Attached(ctx context.Context, organization int64, image, digest string) (all []prove.Attached, more bool, err error) {
	puller, reference, err := r.client(ctx, wanted{organization: organization, image: image}, "", digest)
	if err != nil {
		return nil, false, err
	}
	subject, ok := reference.(name.Digest)
	if _, err := v1.NewHash(digest); err != nil || !ok {
		return nil, false, fault.New(fault.Invalid, "found the digest %.100q; expected sha256: and 64 hexadecimal digits", digest)
	}
	c := collection{puller: puller, repository: subject.Context()}
	index, err := remote.Referrers(subject, remote.WithContext(ctx), remote.Reuse(puller))
	if err != nil {
		return nil, false, ociauth.Classify(err, subject)
	}
	listed, err := index.IndexManifest()
	if err != nil {
		return nil, false, fault.Because(err, fault.Invalid, "%s: the list of referrers cannot be read", subject)
	}
	artifacts := listed.Manifests
	// What is known to be a signature first, so that others cannot push it out of the bounds.
	slices.SortStableFunc(artifacts, func(a, b v1.Descriptor) int { return rank(a) - rank(b) })
	if len(artifacts) > maxArtifacts {
		artifacts, c.more = artifacts[:maxArtifacts], true
	}
	for _, d := range artifacts {
		if err := c.read(ctx, c.repository.Digest(d.Digest.String())); err != nil {
			return nil, false, err
		}
	}
	for _, suffix := range []string{".sig", ".att"} {
		err := c.read(ctx, c.repository.Tag(strings.Replace(digest, ":", "-", 1)+suffix))
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, false, err
		}
	}
	return c.all, c.more, nil
}

// rank puts signatures and attestations before other artifacts.
func rank(d v1.Descriptor) int {
	if prove.IsBundle(d.ArtifactType) {
		return 0
	}
	return 1
}

// collection is what has been read of an image.
type collection struct {
	puller     *remote.Puller
	repository name.Repository
	all        []prove.Attached
	size       int
	more       bool
}

// read adds the signatures and attestations of one manifest. One that is gone, or is none, adds nothing.
func (c *collection) read(ctx context.Context, reference name.Reference) error {
	found, err := c.puller.Get(ctx, reference)
	if err != nil {
		if err = ociauth.Classify(err, reference); fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	if d, ok := reference.(name.Digest); ok && d.DigestStr() != found.Digest.String() {
		return fault.New(fault.Unavailable, "%s is answered with %s", reference, found.Digest)
	}
	var manifest struct {
		Layers []struct {
			MediaType   string            `json:"mediaType"`
			Digest      string            `json:"digest"`
			Size        int64             `json:"size"`
			Annotations map[string]string `json:"annotations"`
		} `json:"layers"`
	}
	if err := json.Unmarshal(found.Manifest, &manifest); err != nil {
		return nil //nolint:nilerr // it is no signature
	}
	if len(manifest.Layers) > maxLayers {
		manifest.Layers, c.more = manifest.Layers[:maxLayers], true
	}
	for _, l := range manifest.Layers {
		a := prove.Attached{Digest: l.Digest, MediaType: l.MediaType, Annotations: l.Annotations}
		if a.Form() == "" {
			continue
		}
		if _, err := v1.NewHash(l.Digest); err != nil {
			continue
		}
		if len(c.all) == maxAttached {
			c.more = true
			return nil
		}
		if l.Size > maxBlob || c.size+int(max(0, l.Size)) > maxBlobs {
			a.Problem = fmt.Sprintf("found %d bytes; expected at most %d, and %d of all that is attached", l.Size, maxBlob, maxBlobs)
		} else if a.Content, err = c.blob(ctx, l.Digest); err != nil {
			return err
		}
		if int64(len(a.Content)) > maxBlob {
			a.Content, a.Problem = nil, fmt.Sprintf("found more bytes than the manifest says; expected at most %d", maxBlob)
		}
		c.size += len(a.Content)
		c.all = append(c.all, a)
	}
	return nil
}

// blob returns a blob, whose digest is checked.
func (c *collection) blob(ctx context.Context, digest string) ([]byte, error) {
	reference := c.repository.Digest(digest)
	layer, err := c.puller.Layer(ctx, reference)
	if err != nil {
		return nil, ociauth.Classify(err, reference)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, ociauth.Classify(err, reference)
	}
	defer body.Close() //nolint:errcheck // it was read
	content, err := io.ReadAll(io.LimitReader(body, maxBlob+1))
	if err != nil {
		return nil, ociauth.Classify(err, reference)
	}
	return content, nil
}
