package oci

import (
	"context"
	"encoding/json"
	"errors"
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
	// maxTags is how many tags of a repository are read: some have a hundred thousand, one per commit.
	maxTags = 20_000
	// maxBuilds is how many tags are compared by creation time, each of which costs requests once; maxNewBuilds is how many of them one
	// poll queries, the last by name first.
	maxBuilds    = 500
	maxNewBuilds = 50
	// maxJudged is how many tags one poll checks for fit, the newest first; the next poll continues with the others. unfitFor is how long
	// an unfit tag is skipped before it is checked again: it may have moved.
	maxJudged = 20
	unfitFor  = time.Hour
)

var _ core.Finder = (*Registries)(nil)

// memory is the memory of a source between polls.
type memory struct {
	// Digest is what was found last, under Tag, and Fits whether it was built for the source's platform.
	Digest string `json:"digest,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Fits   bool   `json:"fits,omitempty"`
	// Builds maps tags to creation times, for newest_build, which assumes that tags do not move.
	Builds map[string]time.Time `json:"builds,omitempty"`
	// Unfit maps tags of manifests that are not images, cannot be read, or were built for another platform, to when that was found.
	Unfit map[string]time.Time `json:"unfit,omitempty"`
}

// Find implements core.Finder for sources of kind oci-image@1.
func (r *Registries) Find(ctx context.Context, s core.Source) (core.Finding, error) {
	parsed, problems := source.Parse(s.Ref, s.Config)
	image, ok := parsed.(*source.Image)
	if len(problems) > 0 || !ok {
		return core.Finding{}, fault.InvalidFields(problems...)
	}
	var noted memory
	if s.Memory != nil {
		if err := json.Unmarshal(s.Memory, &noted); err != nil {
			noted = memory{} // from another release: everything is new again, and known events are not repeated
		}
	}
	last := noted
	found, gone, err := r.newest(ctx, s.Organization, image, &noted)
	if err != nil {
		return core.Finding{}, r.patient(err, image.Place())
	}
	var deleted *core.Notification
	if gone && last.Tag != "" && last.Digest != "" && last.Fits {
		deleted = &core.Notification{
			Image: image.Repository, Tag: last.Tag, Digest: last.Digest,
			PublishedAt: r.d.Clock.Now().UTC().Format(time.RFC3339Nano), Deleted: true,
		}
	}
	raw, err := json.Marshal(noted)
	if err != nil {
		return core.Finding{}, fmt.Errorf("encode the memory of %s: %w", image.Repository, err)
	}
	return core.Finding{Found: found, Gone: deleted, Memory: raw}, nil
}

// newest returns the newest artifact of a source; nil if there is none. Unfit tags are skipped: they hide no other. gone means that
// the tag found last is in no page of the list, and that a request for it is answered 404 as well. With a mutable tag there is no list; a
// 404 alone says nothing, since some registries answer it where access is denied.
func (r *Registries) newest(
	ctx context.Context, organization int64, image *source.Image, noted *memory,
) (found *core.Notification, gone bool, err error) {
	if image.Selection == source.MutableTag {
		found, err = r.judge(ctx, organization, image, image.Tag, noted)
		return found, false, err
	}
	tags, err := r.tags(ctx, of(organization, image))
	if err != nil {
		return nil, false, err
	}
	if last := noted.Tag; last != "" && !slices.Contains(tags, last) {
		if _, err := r.head(ctx, of(organization, image), last); fault.Is(err, fault.NotFound) {
			gone = true
			noted.Tag = ""
		}
	}
	found, err = r.selected(ctx, organization, image, tags, noted)
	return found, gone, err
}

// selected returns the newest artifact of a source among tags.
func (r *Registries) selected(
	ctx context.Context, organization int64, image *source.Image, tags []string, noted *memory,
) (_ *core.Notification, err error) {
	now := r.d.Clock.Now()
	maps.DeleteFunc(noted.Unfit, func(tag string, at time.Time) bool { return now.Sub(at) >= unfitFor || !slices.Contains(tags, tag) })
	tags = slices.DeleteFunc(tags, func(tag string) bool { _, unfit := noted.Unfit[tag]; return unfit })
	if image.Selection == source.NewestBuild {
		if tags, err = r.dated(ctx, organization, image, tags, noted); err != nil {
			return nil, err
		}
	}
	for range maxJudged {
		tag, ok := choose(image, tags, noted)
		if !ok {
			return nil, nil //nolint:nilnil // nothing was found, and nothing went wrong
		}
		found, err := r.judge(ctx, organization, image, tag, noted)
		if err != nil || found != nil {
			return found, err
		}
		noted.unfit(tag, now)
		tags = slices.DeleteFunc(tags, func(other string) bool { return other == tag })
	}
	return nil, nil //nolint:nilnil // the next look continues
}

// unfit records a tag to skip.
func (m *memory) unfit(tag string, at time.Time) {
	if m.Unfit == nil {
		m.Unfit = map[string]time.Time{}
	}
	m.Unfit[tag] = at
}

// choose returns the tag that a source selects.
func choose(image *source.Image, tags []string, noted *memory) (best string, ok bool) {
	if image.Selection != source.NewestBuild {
		return image.Newest(tags)
	}
	for _, tag := range slices.Sorted(slices.Values(tags)) {
		if at, known := noted.Builds[tag]; known && (!ok || !at.Before(noted.Builds[best])) {
			best, ok = tag, true
		}
	}
	return best, ok
}

// judge returns the image under a tag, if it fits; nil if it does not. The image is read once: a HEAD shows whether the tag has moved.
func (r *Registries) judge(
	ctx context.Context, organization int64, image *source.Image, tag string, noted *memory,
) (*core.Notification, error) {
	digest, err := r.head(ctx, of(organization, image), tag)
	if err != nil {
		if image.Selection != source.MutableTag && passable(err) {
			return nil, nil //nolint:nilnil // it was deleted since the tags were listed, or cannot be read
		}
		return nil, err
	}
	if noted.Digest != digest {
		fits, err := r.fits(ctx, organization, image, tag)
		if err != nil && !passable(err) {
			return nil, err
		}
		if err != nil && image.Selection == source.MutableTag {
			return nil, fault.New(fault.Invalid, "%w", err)
		}
		if !fits || err != nil {
			if image.Selection == source.MutableTag {
				noted.Digest, noted.Fits = digest, false
			}
			return nil, nil //nolint:nilnil // it does not fit
		}
		noted.Digest, noted.Fits = digest, true
	}
	noted.Tag = tag
	if !noted.Fits {
		return nil, nil //nolint:nilnil // it does not fit
	}
	n := &core.Notification{Image: image.Repository, Tag: tag, Digest: digest}
	if created := noted.Builds[tag]; image.Selection == source.NewestBuild && !created.IsZero() {
		n.PublishedAt = created.UTC().Format(time.RFC3339)
	}
	return n, nil
}

// passable reports whether an error concerns one tag only: its manifest is not an image, cannot be read, or is gone.
func passable(err error) bool {
	_, other := errors.AsType[core.OtherKind](err)
	_, unusable := errors.AsType[ociauth.Unusable](err)
	return other || unusable || fault.Is(err, fault.Invalid) || fault.Is(err, fault.NotFound)
}

// tags returns the tags of a repository.
func (r *Registries) tags(ctx context.Context, w wanted) ([]string, error) {
	puller, reference, err := r.client(ctx, w, "latest", "")
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
			return nil, fault.New(fault.Invalid, "%s: found more than %d tags; expected fewer: select a mutable tag instead", w.image, maxTags)
		}
	}
	return tags, nil
}

// dated returns the tags whose creation time is known; it records the times. Unreadable tags are skipped.
func (r *Registries) dated(ctx context.Context, organization int64, image *source.Image, tags []string, noted *memory) ([]string, error) {
	tags = slices.DeleteFunc(tags, func(tag string) bool { return !image.Takes(tag) })
	if len(tags) > maxBuilds {
		return nil, fault.New(fault.Invalid, "%s: found %d tags to compare by their time of creation; expected at most %d: narrow allow_tags, or select by semver or lexical", image.Repository, len(tags), maxBuilds)
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
		at, fits, err := r.created(ctx, organization, image, tag)
		switch {
		case err != nil && !passable(err):
			return nil, err
		case err != nil || !fits:
			noted.unfit(tag, r.d.Clock.Now())
		default:
			builds[tag] = at
		}
	}
	noted.Builds = builds
	return slices.Sorted(maps.Keys(builds)), nil
}

// created returns when the image under a tag was created, from its configuration, and whether it was built for the source's platform.
func (r *Registries) created(
	ctx context.Context, organization int64, image *source.Image, tag string,
) (at time.Time, fits bool, err error) {
	img, reference, err := r.image(ctx, organization, image, tag)
	if err != nil || img == nil {
		return time.Time{}, false, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return time.Time{}, false, ociauth.Classify(err, reference)
	}
	return config.Created.Time, true, nil
}

// fits reports whether a tag is that of an image for the source's platform, if it has one.
func (r *Registries) fits(ctx context.Context, organization int64, image *source.Image, tag string) (bool, error) {
	if image.Platform == "" {
		found, _, err := r.found(ctx, organization, image, tag)
		return found != nil, err
	}
	img, _, err := r.image(ctx, organization, image, tag)
	return img != nil, err
}

// found returns the manifest of a tag, which is an image or an index of images.
func (r *Registries) found(
	ctx context.Context, organization int64, image *source.Image, tag string,
) (*remote.Descriptor, name.Reference, error) {
	puller, reference, err := r.client(ctx, of(organization, image), tag, "")
	if err != nil {
		return nil, nil, err
	}
	found, err := puller.Get(ctx, reference)
	if err != nil {
		return nil, nil, ociauth.Classify(err, reference)
	}
	if other, ok := kindOf(found); !ok {
		return nil, nil, fault.New(fault.Invalid, "%s: %w", reference, other)
	}
	return found, reference, nil
}

// image returns the image under a tag: of an index the one for the source's platform, or else its first; nil if there is none.
func (r *Registries) image(ctx context.Context, organization int64, image *source.Image, tag string) (v1.Image, name.Reference, error) {
	found, reference, err := r.found(ctx, organization, image, tag)
	if err != nil {
		return nil, nil, err
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
		// An index may contain attestations, for a platform "unknown".
		if !m.MediaType.IsImage() || m.Platform != nil && m.Platform.OS == "unknown" ||
			want != nil && (m.Platform == nil || !m.Platform.Satisfies(*want)) {
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

// single returns an image that is not an index.
func single(found *remote.Descriptor, reference name.Reference, want *v1.Platform) (v1.Image, name.Reference, error) {
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
