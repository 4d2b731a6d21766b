package attest

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push publishes an image under a tag, with its referrers. The signature comes first: the tag is never visible without it. Credentials are
// Docker's.
func Push(ctx context.Context, repository, tag string, image v1.Image, referrers []v1.Image) error {
	at, err := name.NewTag(repository + ":" + tag)
	if err != nil {
		return fmt.Errorf("repository %q: %w", repository, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	if err := remote.Write(at.Context().Digest(digest.String()), image, options...); err != nil {
		return fmt.Errorf("push %s@%s: %w", repository, digest, err)
	}
	for _, r := range referrers {
		own, err := r.Digest()
		if err != nil {
			return fmt.Errorf("digest: %w", err)
		}
		if err := remote.Write(at.Context().Digest(own.String()), r, options...); err != nil {
			return fmt.Errorf("push %s, which refers to %s: %w", own, digest, err)
		}
	}
	if err := remote.Tag(at, image, options...); err != nil {
		return fmt.Errorf("tag %s: %w", at, err)
	}
	return nil
}
