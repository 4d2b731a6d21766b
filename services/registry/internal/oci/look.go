package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

const (
	// maxTags is how many tags of a repository are read: some have a hundred thousand, one for each commit.
	maxTags = 20_000
	// maxBuilds is how many tags are compared by their time of creation, each of which costs requests once; maxNewBuilds
	// is how many of them one look asks about, the last by name first.
	maxBuilds    = 500
	maxNewBuilds = 50
)

var _ core.Looker = (*Registries)(nil)

// memory is what a look notes.
type memory struct {
	// Digest is what was found last, and Fits whether it was built for the source's platform.
	Digest string `json:"digest,omitempty"`
	Fits   bool   `json:"fits,omitempty"`
	// Builds are the times of creation by tag, for newest_build, which takes tags to stay what they are.
	Builds map[string]time.Time `json:"builds,omitempty"`
}

// Look implements core.Looker for sources of kind oci-image@1.
func (r *Registries) Look(ctx context.Context, s core.Source) (core.Sight, error) {
	parsed, problems := source.Parse(s.Ref, s.Config)
	image, ok := parsed.(*source.Image)
	if len(problems) > 0 || !ok {
		return core.Sight{}, fault.InvalidFields(problems...)
	}
	var noted memory
	if s.Memory != nil {
		if err := json.Unmarshal(s.Memory, &noted); err != nil {
			noted = memory{} // another release's: everything is new again, and told events are not told twice
		}
	}
	found, err := r.newest(ctx, image, &noted)
	if err != nil {
		return core.Sight{}, r.patient(err, image.Place())
	}
	raw, err := json.Marshal(noted)
	if err != nil {
		return core.Sight{}, fmt.Errorf("note a look at %s: %w", image.Repository, err)
	}
	return core.Sight{Found: found, Memory: raw}, nil
}

// newest is the newest artifact of a source; nil if there is none.
func (r *Registries) newest(ctx context.Context, image *source.Image, noted *memory) (*core.Notification, error) {
	tag, created, err := r.choose(ctx, image, noted)
	if err != nil || tag == "" {
		return nil, err
	}
	digest, err := r.Digest(ctx, image.Repository, tag, "")
	if err != nil {
		return nil, err
	}
	if noted.Digest != digest {
		fits, err := r.fits(ctx, image, tag)
		if err != nil {
			return nil, err
		}
		noted.Digest, noted.Fits = digest, fits
	}
	if !noted.Fits {
		return nil, nil //nolint:nilnil // nothing was found, and nothing went wrong
	}
	n := &core.Notification{Image: image.Repository, Tag: tag, Digest: digest}
	if !created.IsZero() {
		n.PublishedAt = created.UTC().Format(time.RFC3339)
	}
	return n, nil
}

// choose is the tag that a source selects, "" for none, and when its image was created, where that is what it goes by.
func (r *Registries) choose(ctx context.Context, image *source.Image, noted *memory) (string, time.Time, error) {
	if image.Selection == source.MutableTag {
		return image.Tag, time.Time{}, nil
	}
	tags, err := r.tags(ctx, image.Repository)
	if err != nil {
		return "", time.Time{}, err
	}
	if image.Selection == source.NewestBuild {
		return r.lastBuilt(ctx, image, tags, noted)
	}
	tag, _ := image.Newest(tags)
	return tag, time.Time{}, nil
}

// tags are the tags of a repository.
func (r *Registries) tags(ctx context.Context, image string) ([]string, error) {
	reference, err := r.reference(image, "latest", "")
	if err != nil {
		return nil, err
	}
	puller, err := r.get()
	if err != nil {
		return nil, err
	}
	lister, err := puller.Lister(ctx, reference.Context())
	if err != nil {
		if err = ociauth.Classify(err, reference.Context()); fault.Is(err, fault.NotFound) {
			err = fault.New(fault.NotFound, "%s: the registry has no such repository, or nothing in it", reference.Context())
		}
		return nil, err
	}
	var tags []string
	for lister.HasNext() {
		page, err := lister.Next(ctx)
		if err != nil {
			return nil, ociauth.Classify(err, reference.Context())
		}
		if tags = append(tags, page.Tags...); len(tags) > maxTags {
			return nil, fault.New(fault.Invalid, "%s: found more than %d tags; expected fewer: select a mutable tag instead", image, maxTags)
		}
	}
	return tags, nil
}

// lastBuilt is the tag whose image was created last.
func (r *Registries) lastBuilt(ctx context.Context, image *source.Image, tags []string, noted *memory) (string, time.Time, error) {
	tags = slices.DeleteFunc(tags, func(tag string) bool { return !image.Takes(tag) })
	if len(tags) > maxBuilds {
		return "", time.Time{}, fault.New(fault.Invalid, "%s: found %d tags to compare by their time of creation; expected at most %d: narrow allow_tags", image.Repository, len(tags), maxBuilds)
	}
	builds := map[string]time.Time{}
	for _, tag := range tags {
		if at, ok := noted.Builds[tag]; ok {
			builds[tag] = at
		}
	}
	slices.Sort(tags)
	asked := 0
	for _, tag := range slices.Backward(tags) {
		if _, known := builds[tag]; known || asked == maxNewBuilds {
			continue
		}
		asked++
		at, err := r.created(ctx, image, tag)
		if err != nil {
			return "", time.Time{}, err
		}
		builds[tag] = at
	}
	noted.Builds = builds
	best, ok := "", false
	for _, tag := range slices.Sorted(maps.Keys(builds)) {
		if !ok || !builds[tag].Before(builds[best]) {
			best, ok = tag, true
		}
	}
	return best, builds[best], nil
}

// created is when the image under a tag was made, as its configuration has it.
func (r *Registries) created(ctx context.Context, image *source.Image, tag string) (time.Time, error) {
	img, reference, err := r.image(ctx, image, tag)
	if err != nil {
		return time.Time{}, err
	}
	if img == nil {
		return time.Time{}, nil // of another platform: older than everything
	}
	config, err := img.ConfigFile()
	if err != nil {
		return time.Time{}, ociauth.Classify(err, reference)
	}
	return config.Created.Time, nil
}

// fits reports whether what is under a tag was built for the source's platform.
func (r *Registries) fits(ctx context.Context, image *source.Image, tag string) (bool, error) {
	if image.Platform == "" {
		return true, nil
	}
	img, _, err := r.image(ctx, image, tag)
	return img != nil, err
}

// image is the image under a tag, of an index the one for the source's platform or else its first; nil if there is none
// for it.
func (r *Registries) image(ctx context.Context, image *source.Image, tag string) (v1.Image, name.Reference, error) {
	reference, err := r.reference(image.Repository, tag, "")
	if err != nil {
		return nil, nil, err
	}
	puller, err := r.get()
	if err != nil {
		return nil, nil, err
	}
	found, err := puller.Get(ctx, reference)
	if err != nil {
		return nil, nil, ociauth.Classify(err, reference)
	}
	var want *v1.Platform
	if image.Platform != "" {
		if want, err = v1.ParsePlatform(image.Platform); err != nil {
			return nil, nil, fault.Because(err, fault.Invalid, "platform %q", image.Platform)
		}
	}
	if !found.MediaType.IsIndex() {
		return single(found, reference, want)
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, nil, ociauth.Classify(err, reference)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, nil, ociauth.Classify(err, reference)
	}
	for _, m := range manifest.Manifests {
		// Attestations stand in an index too, for a platform "unknown".
		if !m.MediaType.IsImage() || m.Platform != nil && m.Platform.OS == "unknown" || want != nil && (m.Platform == nil || !m.Platform.Satisfies(*want)) {
			continue
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			return nil, nil, ociauth.Classify(err, reference)
		}
		return img, reference, nil
	}
	return nil, reference, nil
}

// single is an image that is no index.
func single(found *remote.Descriptor, reference name.Reference, want *v1.Platform) (v1.Image, name.Reference, error) {
	if !found.MediaType.IsImage() {
		return nil, nil, fault.New(fault.Invalid, "%s is of type %q; expected an image or an index", reference, found.MediaType)
	}
	img, err := found.Image()
	if err != nil {
		return nil, nil, ociauth.Classify(err, reference)
	}
	if want == nil {
		return img, reference, nil
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, nil, ociauth.Classify(err, reference)
	}
	if p := config.Platform(); p == nil || !p.Satisfies(*want) {
		return nil, reference, nil
	}
	return img, reference, nil
}
