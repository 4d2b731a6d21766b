package oci

import (
	"context"
	"encoding/json"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/pkg/provenance"
)

// maxConfig is the size of a configuration that is read, in bytes.
const maxConfig = 1 << 20

// Claimed implements prove.Attachments. A claim is taken from one place, the first that makes any: the annotations of the manifest, of an
// index before those of its first image, then the labels of the image. Source and revision of different places may be of different
// images, since labels are inherited from base images.
func (r *Registries) Claimed(ctx context.Context, organization int64, image, digest string) (provenance.Claim, error) {
	none := provenance.Claim{}
	puller, reference, err := r.client(ctx, wanted{organization: organization, image: image}, "", digest)
	if err != nil {
		return none, err
	}
	subject, ok := reference.(name.Digest)
	if _, err := v1.NewHash(digest); err != nil || !ok {
		return none, fault.New(fault.Invalid, "found the digest %.100q; expected sha256: and 64 hexadecimal digits", digest)
	}
	for range 2 { // an index, and its first image
		found, err := puller.Get(ctx, subject)
		if err != nil {
			return none, ociauth.Classify(err, subject)
		}
		if _, err := digestOf(&found.Descriptor, subject); err != nil {
			return none, err
		}
		var m struct {
			Annotations map[string]string `json:"annotations"`
			Config      *v1.Descriptor    `json:"config"`
			Manifests   []v1.Descriptor   `json:"manifests"`
		}
		if err := json.Unmarshal(found.Manifest, &m); err != nil {
			return none, fault.Because(err, fault.Invalid, "%s: the manifest cannot be read", subject)
		}
		if c := provenance.ClaimIn(m.Annotations); !c.None() {
			return c, nil
		}
		if !found.MediaType.IsIndex() {
			return claimedByLabels(ctx, puller, subject, m.Config)
		}
		first := firstImage(m.Manifests)
		if first == nil {
			return none, nil
		}
		subject = subject.Context().Digest(first.Digest.String())
	}
	return none, nil
}

// firstImage is that of an index; nil for none. An index may contain attestations, for a platform "unknown".
func firstImage(all []v1.Descriptor) *v1.Descriptor {
	for i, m := range all {
		if m.MediaType.IsImage() && (m.Platform == nil || m.Platform.OS != "unknown") {
			return &all[i]
		}
	}
	return nil
}

// claimedByLabels is the claim that the configuration of an image makes.
func claimedByLabels(
	ctx context.Context, puller *remote.Puller, image name.Digest, config *v1.Descriptor,
) (provenance.Claim, error) {
	claim := provenance.Claim{}
	if config == nil || !config.MediaType.IsConfig() || config.Size > maxConfig {
		return claim, nil
	}
	c := collection{puller: puller, repository: image.Context()}
	text, err := c.blob(ctx, config.Digest.String())
	if err != nil {
		return claim, err
	}
	var read struct {
		Config struct {
			Labels map[string]string `json:"Labels"`
		} `json:"config"`
	}
	if len(text) <= maxConfig && json.Unmarshal(text, &read) == nil {
		claim = provenance.ClaimIn(read.Config.Labels)
	}
	return claim, nil
}
