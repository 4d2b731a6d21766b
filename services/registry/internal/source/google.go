package source

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseGoogle parses the notifications of Artifact Registry and Container Registry, wrapped by a push subscription of Pub/Sub: message.data
// holds, in base64, action, digest and tag as whole references. A push with a tag is reported twice, with and without the tag.
func parseGoogle(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	message := top.in("message")
	message.require("data", "base64 of a notification of Artifact Registry")
	encoded := message.text("data")
	if err := top.err(); err != nil {
		return nil, err
	}
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, invalid("message.data", "not base64: "+err.Error()+"; expected base64 of a JSON document")
	}
	data, err := open(plain)
	if err != nil {
		return nil, invalid("message.data", fault.FieldsOf(err)[0].Problem)
	}
	// So that errors can name fields inside the base64.
	data.path = "message.data."
	// Other actions are acknowledged, not refused: Pub/Sub repeats a delivery for up to seven days until the response is 2xx.
	deleted := strings.EqualFold(data.text("action"), "DELETE")
	if !deleted && !strings.EqualFold(data.text("action"), "INSERT") {
		return nil, data.err()
	}
	n := core.Notification{
		ID: message.text("messageId"), PublishedAt: stamp(message.text("publishTime")), Deleted: deleted,
		Names: core.Names{ID: "message.messageId", Image: "message.data.digest", Digest: "message.data.digest", Tag: "message.data.tag"},
	}
	if n.ID == "" {
		n.ID = message.text("message_id") // both spellings are documented, and usually both are sent
	}
	n.Image, _, n.Digest = splitReference(data.text("digest"))
	image, tag, _ := splitReference(data.text("tag"))
	n.Tag = tag
	if n.Image == "" {
		n.Image, n.Names.Image = image, "message.data.tag"
	}
	if err := top.err(); err != nil {
		return nil, err
	}
	return single(n, data.err())
}
