package source

import (
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseACR reads the webhook of Azure Container Registry: one event in the form of Distribution's, without the envelope.
// Its ping, which the portal sends to try a hook, its deletions and its charts are passed over.
func parseACR(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	target := top.in("target")
	if top.text("action") != "push" || !isImage(target.text("mediaType")) {
		return nil, top.err()
	}
	// What the client that pushed called the registry, a custom domain included; a hook's host puts that right.
	host, err := hostOf(top.fields, target.fields, "")
	if err != nil {
		return nil, err
	}
	n := core.Notification{
		ID: top.text("id"), Digest: target.text("digest"), Tag: target.text("tag"), PublishedAt: stamp(top.text("timestamp")),
		Names: core.Names{ID: "id", Image: "target.repository", Digest: "target.digest", Tag: "target.tag"},
	}
	if repository := target.text("repository"); repository != "" {
		n.Image = host + "/" + repository
	}
	return []core.Notification{n}, top.err()
}
