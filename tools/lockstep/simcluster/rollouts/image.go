package rollouts

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Registry reads images' labels from their registries. What it has read of a digest it keeps; a failure is repeated
// for a second, as a kubelet backs off.
type Registry struct {
	clock clock.Clock

	mu    sync.Mutex
	known map[string]pulled
}

type pulled struct {
	labels map[string]string
	err    error
	until  time.Time // of a failure, and of what a tag means
}

var _ Images = (*Registry)(nil)

const (
	// pullTimeout is for a registry that hangs. One that is slow on a busy machine is no reason for pods to fail.
	pullTimeout = 20 * time.Second
	pullBackoff = time.Second
)

// NewRegistry makes an empty one.
func NewRegistry(clk clock.Clock) *Registry {
	return &Registry{clock: clk, known: map[string]pulled{}}
}

// Labels are the labels of the image's configuration.
func (r *Registry) Labels(ctx context.Context, reference string) (map[string]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if p, ok := r.known[reference]; ok && (p.until.IsZero() || now.Before(p.until)) {
		return p.labels, p.err
	}
	p := pulled{}
	var pinned bool
	if p.labels, pinned, p.err = pull(ctx, reference); p.err != nil || !pinned {
		p.until = r.clock.Now().Add(pullBackoff)
	}
	r.known[reference] = p
	return p.labels, p.err
}

func pull(ctx context.Context, reference string) (labels map[string]string, pinned bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, false, fmt.Errorf("image reference: %w", err)
	}
	_, pinned = ref.(name.Digest)
	image, err := remote.Image(ref, remote.WithContext(ctx))
	if err != nil {
		return nil, pinned, fmt.Errorf("pull %s: %w", reference, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, pinned, fmt.Errorf("pull the configuration of %s: %w", reference, err)
	}
	return config.Config.Labels, pinned, nil
}
