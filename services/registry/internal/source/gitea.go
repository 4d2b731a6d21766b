package source

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseGitea reads the events package and push of Gitea and Forgejo. The version of a container package is its tag, or its digest
// when it was pushed without one. The registry is at the host of the package's page.
func parseGitea(header http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	// The signature covers the body alone; all that this header decides is under which keys it is read.
	if header.Get("X-Gitea-Event") == "push" {
		return pushed(top, top.in("repository"), "clone_url")
	}
	pkg := top.in("package")
	if top.text("action") != "created" || pkg.text("type") != "container" {
		return nil, top.err()
	}
	n := core.Notification{
		Tag: pkg.text("version"), PublishedAt: stamp(pkg.text("created_at")),
		Names: core.Names{Image: pkg.name("html_url"), Digest: pkg.name("version"), Tag: pkg.name("version")},
	}
	if isDigest(n.Tag) {
		n.Digest, n.Tag = n.Tag, ""
	}
	owner := pkg.in("owner").text("login")
	if owner == "" {
		owner = pkg.in("owner").text("username")
	}
	if u, err := url.Parse(pkg.text("html_url")); err == nil {
		// A place and not a part of the image, so that a hook's host replaces it even where it has no dot to be known by.
		if n.Place = u.Host; u.Scheme == "http" && u.Host != "" {
			n.Place = "http://" + u.Host
		}
	}
	if name := pkg.text("name"); owner != "" && name != "" {
		// Names of owners keep their capitals, repositories may not have any.
		n.Image = strings.ToLower(owner + "/" + name)
	}
	id, _ := pkg.number("id")
	n.ID = strings.Join([]string{"package", strconv.FormatInt(id, 10), n.PublishedAt, n.Image, n.Tag, n.Digest}, " ")
	return single(n, top.err())
}
