package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	ocilogin "github.com/lockstep-cd/lockstep/pkg/ociauth/login"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// The media types of a packaged chart, by which Helm knows it.
const (
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// maxArchive bounds a packaged chart, in bytes; maxManifest all that a registry says about it. The library would read 100 MiB.
const (
	maxArchive  = 4 << 20
	maxManifest = 256 << 10
)

// chartPath is the path of a chart in a registry.
var chartPath = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

// parseChart reads a reference. The library takes a first part that does not look like a host for a folder of Docker Hub.
func parseChart(reference string) (name.Reference, error) {
	host, _, within := strings.Cut(reference, "/")
	ref, err := name.ParseReference(reference)
	if err != nil || !within || host != "localhost" && !strings.ContainsAny(host, ".:") || !chartPath.MatchString(ref.Context().RepositoryStr()) {
		return nil, fault.InvalidFields(fault.Field{Name: "chart", Problem: fmt.Sprintf(
			"found %.200q, expected oci://, a host with a dot or a port, and the path of a repository", reference)})
	}
	return ref, nil
}

var _ activity.Charts = (*Client)(nil)

// Pull implements activity.Charts. Which registries may be reached is the decision of the transport, as for every request. The registry
// says which server issues tokens, and that server gets the credential: a credential that may be sent to the registry is trusted to it.
func (c *Client) Pull(ctx context.Context, q activity.ChartRequest) (out activity.Chart, err error) {
	ref, err := parseChart(q.Reference)
	if err != nil {
		return out, err
	}
	leave, err := c.enter(q.Organization, false, ref.Context().RegistryStr())
	if err != nil {
		return out, err
	}
	defer leave()
	way := &bounded{next: c.transport}
	way.most.Store(maxManifest)
	options, ref, err := c.access(ctx, q, ref, way)
	if err != nil {
		return out, err
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return out, fmt.Errorf("client for %s: %w", ref, err)
	}
	found, err := puller.Get(ctx, ref)
	if err != nil {
		return out, unread(err, ref)
	}
	content, err := contentOf(found.Manifest, ref)
	if err != nil {
		return out, err
	}
	way.most.Store(maxArchive)
	layer, err := puller.Layer(ctx, ref.Context().Digest(content.Digest.String()))
	if err != nil {
		return out, unread(err, ref)
	}
	text, err := layer.Compressed()
	if err != nil {
		return out, unread(err, ref)
	}
	defer func() { _ = text.Close() }() // what was read is checked by its digest
	if out.Archive, err = io.ReadAll(text); err != nil {
		return activity.Chart{}, unread(err, ref)
	}
	out.Digest = found.Digest.String()
	return out, nil
}

// contentOf finds the archive in the manifest of a chart.
func contentOf(manifest []byte, ref name.Reference) (*v1.Descriptor, error) {
	m, err := v1.ParseManifest(bytes.NewReader(manifest))
	if err != nil || string(m.Config.MediaType) != chartConfig {
		return nil, fault.New(fault.Invalid, "%s is no Helm chart; expected what `helm push` makes", ref)
	}
	for i, layer := range m.Layers {
		if string(layer.MediaType) != chartContent {
			continue
		}
		if layer.Size > maxArchive {
			return nil, fault.New(fault.Refused, "%s has %d bytes, expected at most %d", ref, layer.Size, maxArchive)
		}
		return &m.Layers[i], nil
	}
	return nil, fault.New(fault.Invalid, "%s has no layer %s; expected what `helm push` makes", ref, chartContent)
}

// access is how the registry of a chart is read with a call's credential: one of the kind registry of the organization, or one of the kind
// http, which may be the operator's.
func (c *Client) access(
	ctx context.Context, q activity.ChartRequest, ref name.Reference, way *bounded,
) ([]remote.Option, name.Reference, error) {
	use, err := c.ownRegistry(ctx, q, ref.Context())
	if err != nil {
		return nil, nil, err
	}
	if use == nil {
		auth, secure, err := c.account(ctx, q, ref.Context())
		way.secure = secure
		return []remote.Option{remote.WithTransport(way), remote.WithAuth(auth)}, ref, err
	}
	if way.secure = !use.Insecure(); use.Insecure() {
		if ref, err = name.ParseReference(q.Reference, name.Insecure); err != nil {
			return nil, nil, fault.Because(err, fault.Invalid, "the chart cannot be found")
		}
	}
	return []remote.Option{remote.WithTransport(use.Transport(way)), remote.WithAuth(use)}, ref, nil
}

// ownRegistry is the credential of the kind registry of the organization that a call names; nil for none, or one of another kind.
func (c *Client) ownRegistry(ctx context.Context, q activity.ChartRequest, repository name.Repository) (*ocilogin.Use, error) {
	if _, isSecret := q.Secrets[q.Credential]; q.Credential == "" || isSecret {
		return nil, nil //nolint:nilnil // none is no error
	}
	own, err := c.credentials.own.Named(ctx, q.Organization, q.Credential, sealing.Registry)
	if fault.Is(err, fault.Denied) || err == nil && own == nil { // of another kind, or the operator's
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	return c.registries.Find(ctx, q.Organization, q.Credential, repository)
}

// account is what a call's credential logs in with, and whether that is sent over TLS only. Its URLs have to cover the repository. To the
// library every address of a private network speaks plain HTTP; a credential is sent so only if its URLs say it.
func (c *Client) account(ctx context.Context, q activity.ChartRequest, repository name.Repository) (authn.Authenticator, bool, error) {
	if q.Credential == "" {
		return authn.Anonymous, false, nil
	}
	target := &url.URL{Scheme: "https", Host: repository.RegistryStr(), Path: "/" + repository.RepositoryStr()}
	if isLoopback(target.Hostname()) {
		target.Scheme = repository.Scheme()
	}
	r := activity.WebRequest{Organization: q.Organization, Credential: q.Credential, Secrets: q.Secrets}
	found, value, err := c.credentials.read(ctx, r, target)
	if fault.Is(err, fault.Denied) && target.Scheme != repository.Scheme() {
		target.Scheme = repository.Scheme()
		found, value, err = c.credentials.read(ctx, r, target)
	}
	if err != nil {
		return nil, false, err
	}
	secure := target.Scheme == "https"
	switch {
	case found.Header != "":
		return nil, false, fault.New(fault.Denied, "the credential %q is a header; expected a user name and a password, or a token", q.Credential)
	case found.Username != "":
		activity.Conceal(ctx, found.Username+":"+value)
		return authn.FromConfig(authn.AuthConfig{Username: found.Username, Password: value}), secure, nil
	default:
		return authn.FromConfig(authn.AuthConfig{RegistryToken: value}), secure, nil
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// unread is the error of a request to a registry.
func unread(err error, ref name.Reference) error {
	if own, ok := errors.AsType[*fault.Error](err); ok && own.Class() == fault.Denied { // by the rules about where a program may go
		return fault.New(fault.Refused, "%s: %w", ref, own)
	}
	err = ociauth.Classify(err, ref)
	if fault.Is(err, fault.Denied) {
		return fault.New(fault.Denied, "%s: the registry refuses access; expected a credential of kind registry or http that may read there, named in chart_credential", ref)
	}
	return err
}
