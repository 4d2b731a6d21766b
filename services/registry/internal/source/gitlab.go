package source

import (
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseGitLab parses the notifications of GitLab's container registry, which are Distribution's envelopes, and a project's webhooks: those
// with a custom template, which is the generic document, and those about pushes and tags. Other webhooks without a template are skipped.
func parseGitLab(header http.Header, mediaType string, body []byte) ([]core.Notification, error) {
	if mediaType == mediaEnvelopeV1 || mediaType == mediaEnvelopeV2 {
		return whole(parseDistribution)(header, mediaType, body)
	}
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	// The header is not signed; it only decides how to read a body that does not name its kind.
	about := header.Get("X-Gitlab-Event")
	if kind := top.text("object_kind"); kind == "push" || kind == "tag_push" ||
		!top.has("image") && (about == "Push Hook" || about == "Tag Push Hook") {
		return pushed(top, top.in("project"), "git_http_url")
	}
	if top.has("object_kind") || top.has("event_name") {
		return nil, nil
	}
	return generic(top)
}
