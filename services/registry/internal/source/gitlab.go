package source

import (
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseGitLab reads what GitLab's container registry notifies, which is Distribution's envelope, and what a project's
// webhook sends with a custom template, which is the generic document, or about pushes and tags. Other webhooks without a
// template are about other things, and passed over.
func parseGitLab(header http.Header, mediaType string, body []byte) ([]core.Notification, error) {
	if mediaType == mediaEnvelopeV1 || mediaType == mediaEnvelopeV2 {
		return whole(parseDistribution)(header, mediaType, body)
	}
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	// The header is not signed; all that it decides is how a body that says nothing of its kind is read.
	about := header.Get("X-Gitlab-Event")
	if kind := top.text("object_kind"); kind == "push" || kind == "tag_push" || !top.has("image") && (about == "Push Hook" || about == "Tag Push Hook") {
		return pushed(top, top.in("project"), "git_http_url")
	}
	if top.has("object_kind") || top.has("event_name") {
		return nil, nil
	}
	return generic(top)
}
