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
		// labelled is what the label of the source is then; empty for none.
		labelled string
	}{
		"labels":                             {labelled(texts(address, commit)), whole, address},
		"annotations":                        {annotated(nil, texts(address, commit)), whole, address},
		"annotations before labels":          {annotated(texts("https://git.example.com/base", other), texts(address, commit)), whole, address},
		"nothing of two places":              {annotated(texts(address, other), texts("", commit)), provenance.Claim{Revision: commit}, ""},
		"labels of an image of an index":     {index(nil, labelled(texts(address, commit))), whole, address},
		"annotations of an index come first": {index(texts(address, commit), annotated(nil, texts(address, other))), whole, address},
		"nothing":                            {labelled(nil), provenance.Claim{}, ""},
		"what is no address and no commit":   {labelled(texts("javascript:alert(1)", "v1.2.3")), provenance.Claim{}, "javascript:alert(1)"},
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
			if r.Labels == nil {
				t.Error("found labels that were not read; want them read")
			}
			if got := r.Labels[provenance.SourceKey]; got != tt.labelled {
				t.Errorf("found the label %q; want %q", got, tt.labelled)
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

// D52: a claim of an index is kept where the image below it cannot be read: one that does not exist has no labels, and those of one that is
// not served now are not known. So are those of an image whose configuration is not served, while its annotations are.
func TestAClaimIsKeptWhereLabelsCannotBeRead(t *testing.T) {
	t.Parallel()
	claim := provenance.Claim{Source: "https://git.example.com/shop/api", Revision: strings.Repeat("a", 40)}
	annotations := map[string]string{provenance.SourceKey: claim.Source, provenance.RevisionKey: claim.Revision}
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image = mutate.Annotations(image, annotations).(v1.Image)
	index := mutate.Annotations(mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}}), annotations).(v1.ImageIndex)
	whole, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	below, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		of, refused v1.Hash
		status      int
		read        bool
	}{
		"an image that does not exist":       {whole, below, 404, true},
		"an image that is not served now":    {whole, below, 403, false},
		"a configuration that is not served": {below, config, 403, false},
		"a configuration that is gone":       {below, config, 404, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := newImages(t, true)
			reference, err := ociname.NewTag(registry.host + "/shop/api:1")
			if err != nil {
				t.Fatal(err)
			}
			if err := remote.WriteIndex(reference, index); err != nil {
				t.Fatal(err)
			}
			registry.refuses.Store(&refusal{tt.refused.String(), tt.status})
			r := proved(t, prover(t, SignerConfig{Name: "release", PublicKey: newSigning(t).publicFile(t)}), reference.Context().Digest(tt.of.String()))
			if r.Claimed == nil || *r.Claimed != claim || (r.Labels != nil) != tt.read {
				t.Errorf("found %+v with the labels %v; want the claim, and labels that were read: %v", r.Claimed, r.Labels, tt.read)
			}
		})
	}
}
