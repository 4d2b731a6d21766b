// Package oci resolves references to manifests at registries that implement the OCI distribution specification.
//
// It pulls no images and makes no decisions: what to resolve, and what follows from it, is core's.
package oci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Deps is what Registries needs.
type Deps struct {
	// Transport reaches the registries: names and redirects are other people's.
	Transport http.RoundTripper
	Accounts  ociauth.Accounts
	Clock     clock.Clock
}

// Registries ask any registry.
type Registries struct {
	d        Deps
	patience *patience

	mu     sync.Mutex
	puller *remote.Puller
	until  time.Time
}

var _ core.Registries = (*Registries)(nil)

// keep is how long logins and connections of registries are remembered; then passwords are read again. A registry's
// token is good for minutes as well, and one for each hint would double the requests.
const keep = 5 * time.Minute

// New is a client of all registries.
func New(d Deps) *Registries {
	return &Registries{d: d, patience: &patience{next: &conditional{next: d.Transport}, clock: d.Clock}}
}

// Digest asks for what is under a tag or, where that is empty, whether a digest is there.
func (r *Registries) Digest(ctx context.Context, image, tag, digest string) (string, error) {
	reference, err := r.reference(image, tag, digest)
	if err != nil {
		return "", err
	}
	puller, err := r.get()
	if err != nil {
		return "", err
	}
	// HEAD, because Docker Hub counts each GET of a manifest as a pull, against a limit.
	found, err := puller.Head(ctx, reference)
	if noDigest(err) { // some registries leave the digest out of an answer to HEAD
		var d *remote.Descriptor
		if d, err = puller.Get(ctx, reference); err == nil {
			found = &d.Descriptor
		}
	}
	if err != nil {
		return "", ociauth.Classify(err, reference)
	}
	return digestOf(found, reference)
}

func digestOf(found *v1.Descriptor, reference name.Reference) (string, error) {
	if !found.MediaType.IsImage() && !found.MediaType.IsIndex() {
		return "", fault.New(fault.Invalid, "%s is of type %q; expected an image or an index", reference, found.MediaType)
	}
	// A registry, or a cache before it, may answer with another manifest; what is asked for by digest is just that one.
	if d, ok := reference.(name.Digest); ok && d.DigestStr() != found.Digest.String() {
		return "", fault.New(fault.Invalid, "%s is answered with %s", reference, found.Digest)
	}
	return found.Digest.String(), nil
}

// reference is what to ask for. The caller has checked tag and digest (core's rules): they become a part of the URL as
// they are. An insecure host is asked by HTTPS first.
func (r *Registries) reference(image, tag, digest string) (name.Reference, error) {
	repository, err := name.NewRepository(image, r.d.Accounts.Options(image)...)
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "%q is not a repository", image)
	}
	if tag == "" {
		return repository.Digest(digest), nil
	}
	return repository.Tag(tag), nil
}

// get is the puller, a new one now and then.
func (r *Registries) get() (*remote.Puller, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.d.Clock.Now()
	if r.puller != nil && now.Before(r.until) {
		return r.puller, nil
	}
	puller, err := remote.NewPuller(
		remote.WithTransport(r.patience), remote.WithAuthFromKeychain(r.d.Accounts), remote.WithUserAgent("lockstep"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // hints are tried again, much later, by who claims them
	)
	if err != nil {
		return nil, fmt.Errorf("make a client of registries: %w", err)
	}
	r.puller, r.until = puller, now.Add(keep)
	return puller, nil
}

// noDigest tells an answer without a digest from all other failures.
func noDigest(err error) bool {
	if err == nil {
		return false
	}
	if t, ok := errors.AsType[*transport.Error](err); ok {
		return t.StatusCode == http.StatusMethodNotAllowed
	}
	// The library has no type for this. If its wording changes, such registries look unavailable, and their hints wait.
	return strings.Contains(err.Error(), "response did not include")
}
