package source

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseGitea parses the events package and push of Gitea and Forgejo. The version of a container package is its tag, or its digest if it
// was pushed without one. The registry is at the host of the package's page.
func parseGitea(header http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	// The signature covers only the body; this header only selects the keys to read.
	if header.Get("X-Gitea-Event") == "push" {
		return pushed(top, top.in("repository"), "clone_url")
	}
	pkg := top.in("package")
	action := top.text("action")
	if action != "created" && action != "deleted" || pkg.text("type") != "container" {
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
		// As Place and not as part of the image, so that a hook's host replaces it even if it has no dot.
		if n.Place = u.Host; u.Scheme == "http" && u.Host != "" {
			n.Place = "http://" + u.Host
		}
	}
	if name := pkg.text("name"); owner != "" && name != "" {
		// Names of owners may have capitals, repositories may not.
		n.Image = strings.ToLower(owner + "/" + name)
	}
	id, _ := pkg.number("id")
	n.ID = strings.Join([]string{"package", strconv.FormatInt(id, 10), n.PublishedAt, n.Image, n.Tag, n.Digest}, " ")
	if n.Deleted = action == "deleted"; n.Deleted {
		// The date is that of the package; when it was deleted nobody says. A package that is created again has another number.
		n.ID, n.PublishedAt = "deleted "+n.ID, ""
	}
	return single(n, top.err())
}
