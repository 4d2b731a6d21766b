// Package oci asks registries of the OCI distribution specification which manifest a reference names.
//
// It pulls nothing, and it decides nothing: what to ask and what to make of the answer is core's.
package oci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Account is how to log in at a registry.
type Account struct {
	// Host is the registry, or a registry and the beginning of a path for what is below it.
	Host string
	// Username may be empty where Password is a token.
	Username string
	// Password is read each time that it is needed.
	Password func() (string, error)
	// Insecure speaks HTTP where HTTPS is not to be had.
	Insecure bool
}

// Deps is what Registries needs.
type Deps struct {
	// Transport reaches the registries: names and redirects are other people's.
	Transport http.RoundTripper
	Accounts  []Account
	// DockerConfig also logs in with what docker's configuration of this process's account has, credential helpers
	// included.
	DockerConfig bool
	Clock        clock.Clock
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

// New is a client of all registries. The error is Invalid and names the account.
func New(d Deps) (*Registries, error) {
	for i, a := range d.Accounts {
		if _, err := name.NewRegistry(hostOf(a.Host)); err != nil || a.Host == "" {
			return nil, fault.InvalidFields(fault.Field{
				Name: fmt.Sprintf("registries[%d].host", i), Problem: fmt.Sprintf("found %q; expected a registry's host, with its port if it has one", a.Host),
			})
		}
	}
	return &Registries{d: d, patience: &patience{next: &conditional{next: d.Transport}, clock: d.Clock}}, nil
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
		return "", classify(err, reference)
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
	var options []name.Option
	for _, a := range r.d.Accounts {
		if a.Insecure && strings.EqualFold(hostOf(a.Host), hostOf(image)) {
			options = append(options, name.Insecure)
		}
	}
	repository, err := name.NewRepository(image, options...)
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
		remote.WithTransport(r.patience), remote.WithAuthFromKeychain(r), remote.WithUserAgent("lockstep"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // hints are tried again, much later, by who claims them
	)
	if err != nil {
		return nil, fmt.Errorf("make a client of registries: %w", err)
	}
	r.puller, r.until = puller, now.Add(keep)
	return puller, nil
}

// Resolve is the account for a repository: the one whose host is the longest that the repository begins with.
// Repositories come out of payloads, so a password must not go to a host that merely looks like its own.
func (r *Registries) Resolve(target authn.Resource) (authn.Authenticator, error) {
	var best *Account
	for i, a := range r.d.Accounts {
		if covers(a.Host, target.String()) && (best == nil || len(a.Host) > len(best.Host)) {
			best = &r.d.Accounts[i]
		}
	}
	if best != nil && best.Password != nil {
		password, err := best.Password()
		if err != nil {
			return nil, fmt.Errorf("read the password of %s: %w", best.Host, err)
		}
		if best.Username == "" {
			return authn.FromConfig(authn.AuthConfig{RegistryToken: password}), nil
		}
		return authn.FromConfig(authn.AuthConfig{Username: best.Username, Password: password}), nil
	}
	if r.d.DockerConfig {
		auth, err := authn.DefaultKeychain.Resolve(target)
		if err != nil {
			return nil, fmt.Errorf("look %s up in docker's configuration: %w", target.RegistryStr(), err)
		}
		return auth, nil
	}
	return authn.Anonymous, nil
}

// covers reports whether a repository is at a host, or below a path there.
func covers(host, repository string) bool {
	registry, path, _ := strings.Cut(host, "/")
	if r, err := name.NewRegistry(registry); err == nil {
		registry = r.RegistryStr() // docker.io is index.docker.io
	}
	whole := strings.TrimSuffix(registry+"/"+path, "/")
	// Up to a slash: registry.example.com does not cover registry.example.com.evil.test, nor shop the repository shopping.
	return repository == whole || strings.HasPrefix(repository, whole+"/")
}

func hostOf(image string) string {
	host, _, _ := strings.Cut(image, "/")
	return host
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

// classify says what can be done about an error.
func classify(err error, reference fmt.Stringer) error {
	if own, ok := errors.AsType[*fault.Error](err); ok { // the transport's own refusals
		return fault.New(own.Class(), "%s: %w", reference, own)
	}
	t, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return fault.New(fault.Unavailable, "%s: the registry does not answer: %w", reference, err)
	}
	switch t.StatusCode {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "%s: the registry has no such manifest", reference)
	// Docker Hub and others say so of repositories that do not exist, too. It is tried again: a password can be mended.
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(fault.Denied, "%s: the registry does not let us look: status %d", reference, t.StatusCode)
	default:
		return fault.New(fault.Unavailable, "%s: the registry answers with status %d", reference, t.StatusCode)
	}
}
