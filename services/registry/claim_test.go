package registry

import (
	"strings"
	"testing"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lockstep-cd/lockstep/pkg/provenance"
)

// TestAnImageClaimsItsSource: by annotations of an index, of a manifest, or by labels, from the first place that makes any claim; it is
// verified by nobody, so it is no source (D52).
func TestAnImageClaimsItsSource(t *testing.T) {
	t.Parallel()
	const address = "https://git.example.com/shop/api"
	commit, other := strings.Repeat("a", 40), strings.Repeat("b", 40)
	texts := func(source, revision string) map[string]string {
		return map[string]string{provenance.SourceKey: source, provenance.RevisionKey: revision}
	}
	labelled := func(labels map[string]string) v1.Image {
		made, err := random.Image(100, 1)
		if err == nil {
			made, err = mutate.Config(mutate.MediaType(made, types.OCIManifestSchema1), v1.Config{Labels: labels})
		}
		if err != nil {
			t.Fatal(err)
		}
		return mutate.ConfigMediaType(made, types.OCIConfigJSON)
	}
	annotated := func(labels, annotations map[string]string) v1.Image {
		return mutate.Annotations(labelled(labels), annotations).(v1.Image)
	}
	index := func(annotations map[string]string, of v1.Image) v1.ImageIndex {
		made := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
			mutate.IndexAddendum{Add: labelled(texts("https://git.example.com/attestation", other)), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
			mutate.IndexAddendum{Add: of, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
		return mutate.Annotations(made, annotations).(v1.ImageIndex)
	}
	whole := provenance.Claim{Source: address, Revision: commit}
	for name, tt := range map[string]struct {
		image any
		want  provenance.Claim
	}{
		"labels":                             {labelled(texts(address, commit)), whole},
		"annotations":                        {annotated(nil, texts(address, commit)), whole},
		"annotations before labels":          {annotated(texts("https://git.example.com/base", other), texts(address, commit)), whole},
		"nothing of two places":              {annotated(texts(address, other), texts("", commit)), provenance.Claim{Revision: commit}},
		"labels of an image of an index":     {index(nil, labelled(texts(address, commit))), whole},
		"annotations of an index come first": {index(texts(address, commit), annotated(nil, texts(address, other))), whole},
		"nothing":                            {labelled(nil), provenance.Claim{}},
		"what is no address and no commit":   {labelled(texts("javascript:alert(1)", "v1.2.3")), provenance.Claim{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := newImages(t, true)
			reference, err := ociname.NewTag(registry.host + "/shop/api:1")
			if err != nil {
				t.Fatal(err)
			}
			var digest v1.Hash
			switch made := tt.image.(type) {
			case v1.Image:
				if err = remote.Write(reference, made); err == nil {
					digest, err = made.Digest()
				}
			case v1.ImageIndex:
				if err = remote.WriteIndex(reference, made); err == nil {
					digest, err = made.Digest()
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			p := prover(t, SignerConfig{Name: "release", PublicKey: newSigning(t).publicFile(t)})
			image := reference.Context().Digest(digest.String())
			r := proved(t, p, image)
			if r.Claimed == nil || *r.Claimed != tt.want {
				t.Errorf("claimed %+v, want %+v", r.Claimed, tt.want)
			}
			if len(r.Sources)+len(r.Builders)+len(r.SignedBy)+len(r.Evidence) != 0 {
				t.Errorf("a claim became a fact: %+v", r)
			}
			r, _, err = p.Prove(t.Context(), 1, image.Context().Name(), image.DigestStr(), false)
			if err != nil || r.Claimed != nil {
				t.Errorf("without a request for it: %+v, %v", r.Claimed, err)
			}
		})
	}
}
