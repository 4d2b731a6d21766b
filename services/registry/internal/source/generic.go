package source

import (
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseGeneric parses the document for senders that have no format of their own:
//
//	{"image": "registry.example.com/shop/api:1.4.0", "tag": "1.4.0", "digest": "sha256:…", "published_at": "…", "id": "…"}
//
// The image may include tag and digest. Without a digest, the registry is queried for that of the tag. With deleted_at, an instant, it
// reports a deletion: of the tag or, if there is none, of the image.
func parseGeneric(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	return generic(top)
}

func generic(top node) ([]core.Notification, error) {
	image, tag, digest := splitReference(dropScheme(top.text("image")))
	n := core.Notification{
		ID: top.text("id"), Image: image, Tag: top.text("tag"), Digest: top.text("digest"), PublishedAt: top.text("published_at"),
		Names: core.Names{ID: "id", Image: "image", Tag: "tag", Digest: "digest", PublishedAt: "published_at"},
	}
	if n.Tag == "" {
		n.Tag, n.Names.Tag = tag, "image"
	} else if tag != "" && tag != n.Tag {
		// Neither takes precedence: one of the two is a mistake in a script, and it is unknown which.
		top.wrong("tag", "the tag in image, or none there")
	}
	if n.Digest == "" {
		n.Digest, n.Names.Digest = digest, "image"
	} else if digest != "" && digest != n.Digest {
		top.wrong("digest", "the digest in image, or none there")
	}
	if top.has("deleted_at") {
		n.Deleted, n.PublishedAt, n.Names.PublishedAt = true, top.text("deleted_at"), "deleted_at"
	}
	return single(n, top.err())
}
