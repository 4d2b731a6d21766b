package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/ociauth"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// The media types of a packaged chart, by which Helm knows it.
const (
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// maxArchive bounds a packaged chart, in bytes.
const maxArchive = 4 << 20

var _ activity.Charts = (*Client)(nil)

// Pull implements activity.Charts. Which registries may be reached is the decision of the transport, as for every request. The registry says
// which server issues tokens, and that server gets the credential: a credential that may be sent to the registry is trusted to it.
func (c *Client) Pull(ctx context.Context, q activity.ChartRequest) (out activity.Chart, err error) {
	ref, err := name.ParseReference(q.Reference)
	if err != nil {
		return out, fault.InvalidFields(fault.Field{Name: "chart", Problem: fmt.Sprintf("found %.200q, expected oci:// and a repository", q.Reference)})
	}
	leave, err := c.enter(q.Organization, false, ref.Context().RegistryStr())
	if err != nil {
		return out, err
	}
	defer leave()
	auth, err := c.account(ctx, q, ref.Context())
	if err != nil {
		return out, err
	}
	puller, err := remote.NewPuller(remote.WithTransport(c.transport), remote.WithAuth(auth))
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
	layer, err := puller.Layer(ctx, ref.Context().Digest(content.Digest.String()))
	if err != nil {
		return out, unread(err, ref)
	}
	text, err := layer.Compressed()
	if err != nil {
		return out, unread(err, ref)
	}
	defer func() { _ = text.Close() }() // what was read is checked by its digest
	if out.Archive, err = io.ReadAll(io.LimitReader(text, maxArchive+1)); err != nil {
		return activity.Chart{}, unread(err, ref)
	}
	if len(out.Archive) > maxArchive {
		return activity.Chart{}, fault.New(fault.Refused, "%s has more than %d bytes", ref, maxArchive)
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

// account is what a call's credential logs in with. Its URLs have to cover the repository.
func (c *Client) account(ctx context.Context, q activity.ChartRequest, repository name.Repository) (authn.Authenticator, error) {
	if q.Credential == "" {
		return authn.Anonymous, nil
	}
	target := &url.URL{Scheme: repository.Scheme(), Host: repository.RegistryStr(), Path: "/" + repository.RepositoryStr()}
	found, value, err := c.credentials.read(ctx, activity.WebRequest{
		Organization: q.Organization, Credential: q.Credential, Secrets: q.Secrets,
	}, target)
	if err != nil {
		return nil, err
	}
	switch {
	case found.Header != "":
		return nil, fault.New(fault.Denied, "the credential %q is a header; expected a user name and a password, or a token", q.Credential)
	case found.Username != "":
		activity.Conceal(ctx, found.Username+":"+value)
		return authn.FromConfig(authn.AuthConfig{Username: found.Username, Password: value}), nil
	default:
		return authn.FromConfig(authn.AuthConfig{RegistryToken: value}), nil
	}
}

// unread is the error of a request to a registry.
func unread(err error, ref name.Reference) error {
	if own, ok := errors.AsType[*fault.Error](err); ok && own.Class() == fault.Denied { // by the rules about where a program may go
		return fault.New(fault.Refused, "%s: %w", ref, own)
	}
	return ociauth.Classify(err, ref)
}
