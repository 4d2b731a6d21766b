// Package artifact carries deploy drivers as OCI artifacts: one layer with a driver's folder, every major side by side, under a media
// type of our own (OCI image specification 1.1, artifactType).
//
// It transfers bytes and checks that they are a driver. Which drivers an installation has, when a tag is resolved again and what is
// stored is up to its callers.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
)

const (
	// Type is the artifactType of the manifest. An incompatible format gets a new number.
	Type = "application/vnd.lockstep.driver.v1"
	// ContentType is the media type of the one layer: the driver's folder.
	ContentType types.MediaType = "application/vnd.lockstep.driver.content.v1.tar+gzip"
	// AnnotationDrivers lists the drivers inside, as name@major separated by commas, for people who look at the registry. No code reads it.
	AnnotationDrivers = "dev.lockstep.driver.refs"
	// annotationTitle is defined by the image specification.
	annotationTitle = "org.opencontainers.image.title"

	// emptyType and emptyConfig describe an artifact without a config (image specification 1.1, "Guidance for an empty descriptor").
	emptyType   types.MediaType = "application/vnd.oci.empty.v1+json"
	emptyConfig string          = "{}"
)

// An Artifact is a driver as stored in a registry.
type Artifact struct {
	// Digest is that of the manifest: sha256:<64 hexadecimal digits>.
	Digest string
	// Content is the layer, in the format that Unpack reads.
	Content []byte
	// Bundles are the checked majors inside.
	Bundles []*driver.Bundle
	// Annotations are those of the manifest; anyone may have written them.
	Annotations map[string]string
}

// Client accesses registries.
type Client struct {
	// Transport is a guarded one (pkg/httpx) in a server; nil means http.DefaultTransport.
	Transport http.RoundTripper
	Accounts  ociauth.Accounts
}

func (c Client) options(ctx context.Context) []remote.Option {
	t := c.Transport
	if t == nil {
		t = http.DefaultTransport
	}
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(t), remote.WithAuthFromKeychain(c.Accounts), remote.WithUserAgent("lockstep"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // the caller decides when to retry
	}
}

// Resolve returns the digest of the manifest that a reference names now. A reference by digest needs no request.
func (c Client) Resolve(ctx context.Context, r Reference) (string, error) {
	if r.digest != "" {
		return r.digest, nil
	}
	ref, err := r.in(c.Accounts)
	if err != nil {
		return "", err
	}
	// HEAD, because Docker Hub counts each GET of a manifest as a pull, against a limit.
	d, err := remote.Head(ref, c.options(ctx)...)
	if err == nil {
		return d.Digest.String(), nil
	}
	// Some registries answer HEAD without a digest, or not at all.
	if refused, ok := errors.AsType[*transport.Error](err); ok && refused.StatusCode != http.StatusMethodNotAllowed || passing(err) && !ok {
		return "", classify(err, ref)
	}
	found, err := remote.Get(ref, c.options(ctx)...)
	if err != nil {
		return "", classify(err, ref)
	}
	return found.Digest.String(), nil
}

// Pull fetches the artifact with a digest from Resolve, checks every byte against the digest, and checks that it is a driver. The error is
// Invalid for a broken artifact or one that is no driver, with file and line; Unavailable, NotFound and Denied come from the registry.
func (c Client) Pull(ctx context.Context, r Reference, digest string) (Artifact, error) {
	r.digest = digest
	ref, err := r.in(c.Accounts)
	if err != nil {
		return Artifact{}, err
	}
	found, err := remote.Get(ref, c.options(ctx)...)
	if err != nil {
		return Artifact{}, classify(err, ref)
	}
	var m v1.Manifest
	if err := json.Unmarshal(found.Manifest, &m); err != nil {
		return Artifact{}, fault.Because(err, fault.Invalid, "%s: its manifest is not JSON", ref)
	}
	layer, err := layerOf(m)
	if err != nil {
		return Artifact{}, fault.New(fault.Invalid, "%s: %w", ref, err)
	}
	content, err := c.fetch(ctx, ref, layer)
	if err != nil {
		return Artifact{}, err
	}
	bundles, err := Load(content)
	if err == nil {
		err = driver.CheckNew(bundles)
	}
	if err != nil {
		return Artifact{}, fmt.Errorf("%s: %w", ref, err)
	}
	return Artifact{Digest: digest, Content: content, Bundles: bundles, Annotations: m.Annotations}, nil
}

// Load returns the bundles in a layer. The error is Invalid and names file and line.
func Load(content []byte) ([]*driver.Bundle, error) {
	files, err := Unpack(content)
	if err != nil {
		return nil, err
	}
	return driver.FromFiles(files)
}

// layerOf returns the layer of a driver's manifest.
func layerOf(m v1.Manifest) (v1.Descriptor, error) {
	switch {
	case m.ArtifactType != Type:
		return v1.Descriptor{}, fault.New(fault.Invalid, "found an artifact of type %q; expected %s, as `lockstep driver push` makes it",
			m.ArtifactType, Type)
	case len(m.Layers) != 1 || m.Layers[0].MediaType != ContentType:
		return v1.Descriptor{}, fault.New(fault.Invalid, "found %d layers; expected one, of type %s", len(m.Layers), ContentType)
	case m.Layers[0].Size > maxContent:
		return v1.Descriptor{}, fault.New(fault.Invalid, "found a driver of %d bytes; expected at most %d", m.Layers[0].Size, maxContent)
	}
	return m.Layers[0], nil
}

// fetch reads the layer within its size limit, whatever size the registry reports, and checks its digest.
func (c Client) fetch(ctx context.Context, ref name.Reference, d v1.Descriptor) ([]byte, error) {
	layer, err := remote.Layer(ref.Context().Digest(d.Digest.String()), c.options(ctx)...)
	if err != nil {
		return nil, classify(err, ref)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, classify(err, ref)
	}
	defer func() { _ = body.Close() }()
	content, err := io.ReadAll(io.LimitReader(body, maxContent+1))
	if err != nil {
		return nil, classify(err, ref)
	}
	sum := sha256.Sum256(content)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != d.Digest.String() {
		return nil, fault.Because(ErrAltered, fault.Invalid, "%s: found a layer with digest %s; expected %s", ref, got, d.Digest)
	}
	return content, nil
}

// Push checks a driver's folder and publishes it under a tag. The same files and annotations always have the same digest. The caller's
// annotations are added to ours.
func (c Client) Push(ctx context.Context, r Reference, files map[string][]byte, annotations map[string]string) (Artifact, error) {
	if r.tag == "" {
		return Artifact{}, fault.New(fault.Invalid, "reference: found %s; expected a tag to push to, oci://registry/repository:tag", r)
	}
	bundles, err := driver.FromFiles(files)
	if err == nil {
		err = driver.CheckNew(bundles)
	}
	if err != nil {
		return Artifact{}, err
	}
	content, err := Pack(files)
	if err != nil {
		return Artifact{}, err
	}
	ref, err := r.in(c.Accounts)
	if err != nil {
		return Artifact{}, err
	}
	made := map[string]string{annotationTitle: bundles[0].Name(), AnnotationDrivers: refs(bundles)}
	maps.Copy(made, annotations)
	config, layer := static.NewLayer([]byte(emptyConfig), emptyType), static.NewLayer(content, ContentType)
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: Type, Annotations: made}
	for _, blob := range []v1.Layer{config, layer} {
		if err := remote.WriteLayer(ref.Context(), blob, c.options(ctx)...); err != nil {
			return Artifact{}, classify(err, ref)
		}
	}
	manifest.Config = describe([]byte(emptyConfig), emptyType)
	manifest.Layers = []v1.Descriptor{describe(content, ContentType)}
	text, err := json.Marshal(manifest)
	if err != nil {
		return Artifact{}, fmt.Errorf("encode the manifest of %s: %w", ref, err)
	}
	// The manifest comes last: an incomplete artifact is never visible.
	if err := remote.Put(ref, raw(text), c.options(ctx)...); err != nil {
		return Artifact{}, classify(err, ref)
	}
	return Artifact{Digest: describe(text, types.OCIManifestSchema1).Digest.String(), Content: content, Bundles: bundles, Annotations: made},
		nil
}

// raw is an encoded manifest.
type raw []byte

// RawManifest implements remote.Taggable.
func (r raw) RawManifest() ([]byte, error) { return r, nil }

// MediaType is the media type to send it with.
func (raw) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func describe(content []byte, t types.MediaType) v1.Descriptor {
	sum := sha256.Sum256(content)
	return v1.Descriptor{MediaType: t, Size: int64(len(content)), Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}}
}

func refs(bundles []*driver.Bundle) string {
	var all []string
	for _, b := range bundles {
		all = append(all, b.Ref())
	}
	return strings.Join(all, ",")
}

// ErrAltered is in the chain of an error of Pull for content that does not match its digest: the registry, or something in between, has
// changed it, not the driver's author.
var ErrAltered = errors.New("the content is not that of its digest")

// classify classifies an error. An error that comes from neither the network nor the registry means that the answer is not what was
// requested, such as a manifest with another digest.
func classify(err error, ref name.Reference) error {
	classed := ociauth.Classify(err, ref)
	if !fault.Is(classed, fault.Unavailable) || passing(err) {
		return classed
	}
	text := fmt.Sprintf("%s: the answer is not what was asked for", ref)
	if what := ociauth.Problem(err); what != "" { // the client's text has parts of the answer
		text += ": " + what
	}
	return fault.Because(fmt.Errorf("%w: %w", ErrAltered, err), fault.Invalid, "%s", text)
}

// passing reports whether a retry may help.
func passing(err error) bool {
	_, answered := errors.AsType[*transport.Error](err)
	_, network := errors.AsType[net.Error](err) // an *url.Error is one, and so is a deadline
	return answered || network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled)
}
