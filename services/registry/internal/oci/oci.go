// Package oci resolves references to manifests in registries that implement the OCI distribution specification.
//
// It pulls no images and makes no decisions: package core decides what to resolve and what follows.
package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	"github.com/lockstep-cd/lockstep/pkg/ociauth/login"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Deps are the dependencies of Registries.
type Deps struct {
	// Transport connects to the registries: names and redirects are untrusted.
	Transport http.RoundTripper
	Accounts  ociauth.Accounts
	// Logins are the credentials of organizations, which come before the accounts; nil for none.
	Logins *login.Logins
	Clock  clock.Clock
}

// Registries queries any registry.
type Registries struct {
	d        Deps
	patience *patience

	mu      sync.Mutex
	pullers map[pulls]kept
}

// pulls is what a puller is for: an organization, whose accounts it logs in with, or one value of a credential of its own.
type pulls struct {
	organization int64
	login        string
}

// wanted is a repository, and for whom it is queried.
type wanted struct {
	organization int64
	image        string
	// credential is the name of a credential of the organization; empty for the one that fits best, or the account.
	credential string
}

func of(organization int64, image *source.Image) wanted {
	return wanted{organization, image.Repository, image.Credential}
}

// kept is a client with an expiry.
type kept struct {
	puller *remote.Puller
	until  time.Time
}

var _ core.Registries = (*Registries)(nil)

// keep is how long logins and connections to registries are kept; then passwords are read again. A registry's token is valid for minutes as
// well, and a new one per hint would double the requests.
const keep = 5 * time.Minute

// New returns a client for all registries.
func New(d Deps) *Registries {
	return &Registries{d: d, patience: &patience{next: &conditional{next: d.Transport}, clock: d.Clock}}
}

// Access implements core.Access.
func (r *Registries) Access(organization int64, image string) bool {
	repository, err := name.NewRepository(image)
	if err != nil {
		return false
	}
	if r.d.Accounts.For(organization).Has(repository) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), findWithin)
	defer cancel()
	return r.d.Logins.Has(ctx, organization, repository)
}

// findWithin is how long it may take to find the credential for a repository.
const findWithin = 5 * time.Second

// Digest returns the digest of a tag or, without a tag, checks that a digest exists. It reads the manifest to find out whether it is an
// image; Docker Hub counts that as a pull, but there is no other way.
func (r *Registries) Digest(ctx context.Context, organization int64, image, tag, digest string) (string, error) {
	puller, reference, err := r.client(ctx, wanted{organization: organization, image: image}, tag, digest)
	if err != nil {
		return "", err
	}
	found, err := puller.Get(ctx, reference)
	if err != nil {
		return "", ociauth.Classify(err, reference)
	}
	if other, ok := kindOf(found); !ok {
		return "", fault.New(fault.Invalid, "%s: %w", reference, other)
	}
	return digestOf(&found.Descriptor, reference)
}

// head returns the digest of a tag, by HEAD if the registry supports it: Docker Hub counts each GET of a manifest as a pull, against a
// limit.
func (r *Registries) head(ctx context.Context, w wanted, tag string) (string, error) {
	puller, reference, err := r.client(ctx, w, tag, "")
	if err != nil {
		return "", err
	}
	found, err := puller.Head(ctx, reference)
	if noDigest(err) { // some registries omit the digest from the response to HEAD
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

// kindOf reports whether a manifest is an image or an index of images, and otherwise what it is.
func kindOf(found *remote.Descriptor) (core.OtherKind, bool) {
	var manifest struct {
		MediaType    string `json:"mediaType"`
		ArtifactType string `json:"artifactType"`
		Config       *struct {
			MediaType string `json:"mediaType"`
		} `json:"config"`
		Subject *struct {
			Digest string `json:"digest"`
		} `json:"subject"`
	}
	reported := core.Manifest{MediaType: string(found.MediaType)}
	if err := json.Unmarshal(found.Manifest, &manifest); err != nil {
		return core.OtherKind{What: "a manifest that is not JSON"}, false
	}
	reported.ArtifactType, reported.Subject = manifest.ArtifactType, manifest.Subject != nil
	if manifest.Config != nil {
		reported.ConfigType = manifest.Config.MediaType
	}
	kind, other := reported.Kind()
	return other, kind != core.KindOther
}

func digestOf(found *v1.Descriptor, reference name.Reference) (string, error) {
	// A registry, or a cache in between, may answer with another manifest; a request by digest must return that one.
	if d, ok := reference.(name.Digest); ok && d.DigestStr() != found.Digest.String() {
		return "", fault.New(fault.Invalid, "%s is answered with %s", reference, found.Digest)
	}
	return found.Digest.String(), nil
}

// client returns what queries a repository, and the reference to query. The caller has checked tag and digest (core's rules): they become
// part of the URL unchanged. An insecure host is queried by HTTPS first.
func (r *Registries) client(ctx context.Context, w wanted, tag, digest string) (*remote.Puller, name.Reference, error) {
	options := r.d.Accounts.Options(w.image)
	repository, err := name.NewRepository(w.image, options...)
	if err != nil {
		return nil, nil, fault.Because(err, fault.Invalid, "%q is not a repository", w.image)
	}
	use, err := r.d.Logins.Find(ctx, w.organization, w.credential, repository)
	if err != nil {
		return nil, nil, err
	}
	if use.Insecure() {
		if repository, err = name.NewRepository(w.image, name.Insecure); err != nil {
			return nil, nil, fault.Because(err, fault.Invalid, "%q is not a repository", w.image)
		}
	}
	puller, err := r.get(w.organization, use)
	if err != nil {
		return nil, nil, err
	}
	if tag == "" {
		return puller, repository.Digest(digest), nil
	}
	return puller, repository.Tag(tag), nil
}

// get returns the puller of an organization, or of a credential of its own, a new one after it has expired.
func (r *Registries) get(organization int64, use *login.Use) (*remote.Puller, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.d.Clock.Now()
	of := pulls{organization: organization}
	if use != nil {
		of.login = use.Key()
	}
	if k, ok := r.pullers[of]; ok && now.Before(k.until) {
		return k.puller, nil
	}
	options := []remote.Option{
		remote.WithTransport(r.patience), remote.WithAuthFromKeychain(r.d.Accounts.For(organization)), remote.WithUserAgent("lockstep"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // hints are retried later, when they are claimed again
	}
	if use != nil {
		options[0], options[1] = remote.WithTransport(use.Transport(r.patience)), remote.WithAuth(use)
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return nil, fmt.Errorf("make a client of registries: %w", err)
	}
	maps.DeleteFunc(r.pullers, func(_ pulls, k kept) bool { return !now.Before(k.until) })
	if r.pullers == nil {
		r.pullers = map[pulls]kept{}
	}
	r.pullers[of] = kept{puller: puller, until: now.Add(keep)}
	return puller, nil
}

// noDigest reports whether an error is a response without a digest.
func noDigest(err error) bool {
	if err == nil {
		return false
	}
	if t, ok := errors.AsType[*transport.Error](err); ok {
		return t.StatusCode == http.StatusMethodNotAllowed
	}
	// The library has no type for this error. If its text changes, such registries look unavailable, and their hints wait.
	return strings.Contains(err.Error(), "response did not include")
}
