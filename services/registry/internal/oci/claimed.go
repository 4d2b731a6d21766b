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
// images, since labels are inherited from base images. Labels are those of all places, of each key the first in that order; nil if some of
// them could not be read now, although a claim was found.
func (r *Registries) Claimed(
	ctx context.Context, organization int64, image, digest string,
) (claim provenance.Claim, labels map[string]string, err error) {
	puller, reference, err := r.client(ctx, wanted{organization: organization, image: image}, "", digest)
	if err != nil {
		return claim, nil, err
	}
	subject, ok := reference.(name.Digest)
	if _, err := v1.NewHash(digest); err != nil || !ok {
		return claim, nil, fault.New(fault.Invalid, "found the digest %.100q; expected sha256: and 64 hexadecimal digits", digest)
	}
	places, err := places(ctx, puller, subject)
	for _, place := range places {
		if claim = provenance.ClaimIn(place); !claim.None() {
			break
		}
	}
	gone := len(places) > 0 && (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid)) // what an index, or a manifest, names
	switch {
	case err == nil || gone:
		return claim, provenance.Labels(places...), nil
	case !claim.None():
		return claim, nil, nil
	}
	return claim, nil, err
}

// places are the annotations and labels of an image, those that count first before others; with an error those that were read before it.
func places(ctx context.Context, puller *remote.Puller, subject name.Digest) (all []map[string]string, err error) {
	for range 2 { // an index, and its first image
		found, err := puller.Get(ctx, subject)
		if err != nil {
			return all, ociauth.Classify(err, subject)
		}
		if _, err := digestOf(&found.Descriptor, subject); err != nil {
			return all, err
		}
		var m struct {
			Annotations map[string]string `json:"annotations"`
			Config      *v1.Descriptor    `json:"config"`
			Manifests   []v1.Descriptor   `json:"manifests"`
		}
		if err := json.Unmarshal(found.Manifest, &m); err != nil {
			return all, fault.Because(err, fault.Invalid, "%s: the manifest cannot be read", subject)
		}
		all = append(all, m.Annotations)
		if !found.MediaType.IsIndex() {
			labels, err := labelsOf(ctx, puller, subject, m.Config)
			return append(all, labels), err
		}
		first := firstImage(m.Manifests)
		if first == nil {
			return all, nil
		}
		subject = subject.Context().Digest(first.Digest.String())
	}
	return all, nil
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

// labelsOf are those that the configuration of an image has.
func labelsOf(ctx context.Context, puller *remote.Puller, image name.Digest, config *v1.Descriptor) (map[string]string, error) {
	if config == nil || !config.MediaType.IsConfig() || config.Size > maxConfig {
		return nil, nil
	}
	c := collection{puller: puller, repository: image.Context()}
	text, err := c.blob(ctx, config.Digest.String())
	if err != nil {
		return nil, err
	}
	var read struct {
		Config struct {
			Labels map[string]string `json:"Labels"`
		} `json:"config"`
	}
	if len(text) <= maxConfig {
		_ = json.Unmarshal(text, &read) // what is no configuration has no labels
	}
	return read.Config.Labels, nil
}
