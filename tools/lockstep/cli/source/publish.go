package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

const publishHelp = `Report an image to Lockstep, as a CI job does after its push.

IMAGE is a complete reference with a tag, a digest or both. Without a digest, the tag is resolved at its registry, with
the credentials in docker's configuration. The event is sent to the registry service at --registry, LOCKSTEP_REGISTRY or
the address in --endpoints-file, with the token. Reporting the same image again is a no-op.`

const publishExample = `  lockstep publish registry.example.com/shop/api:1.4.0

  GitLab CI:
    publish:
      script:
        - lockstep publish "$CI_REGISTRY_IMAGE/api:$CI_COMMIT_TAG"

  GitHub Actions:
    - run: lockstep publish "ghcr.io/${{ github.repository }}/api@${{ steps.push.outputs.digest }}"
      env:
        LOCKSTEP_REGISTRY: https://lockstep-registry.example.com
        LOCKSTEP_TOKEN: ${{ secrets.LOCKSTEP_TOKEN }}`

// Published is what was reported.
type Published struct {
	Image  string   `json:"image"`
	Tag    string   `json:"tag,omitempty"`
	Digest string   `json:"digest"`
	Events []string `json:"events"`
}

func (c commands) publish() *cobra.Command {
	var registry, source string
	cmd := &cobra.Command{
		Use: "publish IMAGE", Short: "Report an image to Lockstep", Long: publishHelp, Example: publishExample,
		GroupID: "objects", Args: command.Exactly(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			address, token, err := c.registryService(registry)
			if err != nil {
				return err
			}
			p, err := locate(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if p.Events, err = c.report(cmd.Context(), address, token, source, p); err != nil {
				return err
			}
			return c.Print(p, func(w io.Writer) {
				command.Row(w, "IMAGE", "TAG", "DIGEST", "EVENT")
				command.Row(w, p.Image, p.Tag, command.Short(p.Digest), strings.Join(p.Events, " "))
			})
		},
	}
	cmd.Flags().StringVar(&registry, "registry", "", "address of the registry service, a `URL` (LOCKSTEP_REGISTRY)")
	cmd.Flags().StringVar(&source, "source", "/lockstep/publish",
		"the source of the event, a `URI`; the same image from two sources is reported twice")
	return cmd
}

// registryService is where the registry service is, and the token for it.
func (c commands) registryService(registry string) (address, token string, err error) {
	token = c.Token
	if registry == "" && c.EndpointsFile == "" {
		registry = c.Getenv("LOCKSTEP_REGISTRY")
	}
	if registry == "" && c.EndpointsFile != "" {
		e, err := stack.ReadEndpoints(c.EndpointsFile)
		if err != nil {
			return "", "", fault.New(fault.Invalid, "%w", err)
		}
		registry = e.Registry
		if token == "" {
			token = e.Token
		}
	}
	if registry == "" {
		return "", "", fault.New(fault.Invalid, "missing address of the registry service; expected --registry URL, LOCKSTEP_REGISTRY or --endpoints-file FILE")
	}
	if token == "" {
		token = c.Getenv("LOCKSTEP_TOKEN")
	}
	return strings.TrimSuffix(registry, "/"), token, nil
}

// locate takes a reference apart, and asks its registry for the digest if there is none in it.
func locate(ctx context.Context, reference string) (Published, error) {
	if strings.Contains(reference, "://") {
		return Published{}, fault.New(fault.Invalid,
			"image: found %q, a URL; expected a reference without a scheme, such as registry.example.com/shop/api:1.4.0", reference)
	}
	rest, digest, _ := strings.Cut(reference, "@")
	image, tag := rest, ""
	if at := strings.LastIndexByte(rest, ':'); at > strings.LastIndexByte(rest, '/') {
		image, tag = rest[:at], rest[at+1:]
	}
	p := Published{Image: image, Tag: tag, Digest: digest}
	if digest != "" {
		if _, err := name.NewDigest(image + "@" + digest); err != nil {
			return p, fault.New(fault.Invalid, "image: found %q, expected registry/repository:tag@sha256:…", reference)
		}
		return p, nil
	}
	parsed, err := name.NewTag(rest, name.StrictValidation)
	if err != nil {
		return p, fault.New(fault.Invalid, "image: found %q, expected registry/repository:tag or registry/repository@sha256:…", reference)
	}
	d, err := remote.Head(parsed, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err == nil {
		p.Digest = d.Digest.String()
		return p, nil
	}
	answered, ok := errors.AsType[*transport.Error](err)
	switch {
	case !ok:
		return p, fault.New(fault.Unavailable, "registry of %s: %w", rest, err)
	case answered.StatusCode == http.StatusNotFound:
		return p, fault.New(fault.NotFound, "image %s not found in its registry", rest)
	case answered.StatusCode == http.StatusUnauthorized || answered.StatusCode == http.StatusForbidden:
		return p, fault.New(fault.Denied, "image: the registry denies access to %s; `docker login` may help", rest)
	default:
		return p, fault.New(fault.Unavailable, "registry of %s: answered with status %d", rest, answered.StatusCode)
	}
}

// report sends the event. Its id is the image's identity, so that a repeated job reports nothing new.
func (c commands) report(ctx context.Context, address, token, source string, p Published) ([]string, error) {
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": p.Image + ":" + p.Tag + "@" + p.Digest, "source": source, "type": event.TypeArtifactPublished,
		"data": event.ArtifactPublished{Image: p.Image, Digest: p.Digest, Tag: p.Tag},
	})
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/events", bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Invalid, "registry: found %q, expected a URL", address)
	}
	r.Header.Set("Content-Type", "application/cloudevents+json")
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "registry service: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Events []string `json:"events"`
		Detail string   `json:"detail"`
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		return nil, fault.New(fault.Unauthenticated, "invalid or expired token; expected one of the registry service")
	case response.StatusCode == http.StatusBadRequest:
		return nil, fault.New(fault.Invalid, "registry service: %s", answer.Detail)
	case response.StatusCode >= http.StatusInternalServerError:
		return nil, fault.New(fault.Unavailable, "registry service: answered %s", response.Status)
	case err != nil || response.StatusCode != http.StatusAccepted:
		return nil, fault.New(fault.Invalid, "registry service: found status %s at %s, expected a registry service", response.Status, address)
	}
	return answer.Events, nil
}
