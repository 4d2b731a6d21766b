package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// hubHost is Docker Hub in references. Its API has another host, index.docker.io, which only package oci needs.
const hubHost = "docker.io"

// parseDockerHub parses Docker Hub's webhook. It has no digest and no signature, so it only causes a query of the registry. Its
// callback_url is never called: anyone with the hook's path could have written it.
func parseDockerHub(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	push, repository := top.in("push_data"), top.in("repository")
	name := repository.text("repo_name")
	if name == "" && repository.has("name") { // very old deliveries
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
		// The time of the push, in seconds, is all that distinguishes a repeated delivery from a repeated push.
		n.ID = strings.Join([]string{"push", n.PublishedAt, n.Image, n.Tag}, " ")
	}
	push.require("tag", "the tag that was pushed")
	return single(n, top.err())
}
