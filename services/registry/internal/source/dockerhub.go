package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// hubHost is what Docker's own registry is called in references. The address that answers is another, index.docker.io,
// which only package oci needs to know.
const hubHost = "docker.io"

// parseDockerHub reads Docker Hub's webhook. It tells no digest and is not signed, so that all it does is make us look at
// the registry. Its callback_url is never called: whoever knows the hook's path could have written it.
func parseDockerHub(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	push, repository := top.in("push_data"), top.in("repository")
	name := repository.text("repo_name")
	if name == "" && repository.has("name") { // what very old deliveries had
		name = repository.text("namespace") + "/" + repository.text("name")
	}
	n := core.Notification{
		Image: hubHost + "/" + strings.Trim(name, "/"), Tag: push.text("tag"), PublishedAt: push.seconds("pushed_at"),
		Manifest: core.Manifest{MediaType: push.text("media_type")},
		Names:    core.Names{Image: repository.name("repo_name"), Tag: push.name("tag")},
	}
	if name == "" {
		n.Image = ""
	} else if n.PublishedAt != "" {
		// The second of the push is all that tells a delivery sent again from a tag pushed again.
		n.ID = strings.Join([]string{"push", n.PublishedAt, n.Image, n.Tag}, " ")
	}
	push.require("tag", "the tag that was pushed")
	return single(n, top.err())
}
