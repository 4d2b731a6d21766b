package source

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// githubHost is GitHub's container registry.
const githubHost = "ghcr.io"

// parseGitHub parses the events package and registry_package of GitHub, which differ in the name of one key, and push; it skips ping and
// all others. The digest is the manifest's; if it is missing, the version's name is a digest.
func parseGitHub(header http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	// The signature covers only the body. This header only decides whether the body is read, and under which key; the identity of an event
	// never comes from it, nor from X-GitHub-Delivery, which a replay could change at will.
	key := header.Get("X-Github-Event")
	if key == "push" {
		return pushed(top, top.in("repository"), "clone_url")
	}
	action := top.text("action")
	if key != "package" && key != "registry_package" || action != "published" && action != "updated" {
		return nil, top.err()
	}
	if !top.has(key) { // some versions of one use the name of the other
		key = map[string]string{"package": "registry_package", "registry_package": "package"}[key]
	}
	pkg := top.in(key)
	if !isContainer(pkg) {
		return nil, top.err()
	}
	version := pkg.in("package_version")
	meta := version.in("container_metadata")
	tag := meta.in("tag")
	n := core.Notification{
		Tag: tag.text("name"), PublishedAt: stamp(version.text("updated_at")),
		Names: core.Names{Image: version.name("package_url"), Digest: tag.name("digest"), Tag: tag.name("name")},
	}
	manifest := meta.in("manifest")
	n.Manifest = core.Manifest{MediaType: manifest.text("media_type"), ConfigType: manifest.in("config").text("media_type")}
	n.Image, n.Digest = githubImage(top, pkg, version), tag.text("digest")
	if n.Digest == "" {
		n.Digest = meta.in("manifest").text("digest")
	}
	if name := version.text("version"); n.Digest == "" && isDigest(name) {
		n.Digest = name
	}
	if n.Digest == "" && n.Tag == "" {
		return nil, top.err() // nothing that could be looked up
	}
	id, _ := version.number("id")
	n.ID = strings.Join([]string{"version", strconv.FormatInt(id, 10), n.Image, n.Tag, n.Digest}, " ")
	if n.Digest == "" {
		n.ID += n.PublishedAt // the tag may have moved since the last report
	}
	return single(n, top.err())
}

func isContainer(pkg node) bool {
	for _, key := range []string{"package_type", "ecosystem"} {
		if strings.EqualFold(pkg.text(key), "container") {
			return true
		}
	}
	return false
}

// githubImage returns the image of package_url, which ends in a colon if the push had no tag; or else of owner and name.
func githubImage(top, pkg, version node) string {
	if image, _, _ := splitReference(strings.TrimSuffix(dropScheme(version.text("package_url")), ":")); image != "" {
		// GitHub's owners and names may have capitals; ghcr.io has none.
		return strings.ToLower(image)
	}
	owner := pkg.in("owner").text("login")
	if owner == "" {
		owner = pkg.text("namespace")
	}
	if owner == "" {
		owner = top.in("organization").text("login")
	}
	if owner == "" || pkg.text("name") == "" {
		return ""
	}
	return strings.ToLower(githubHost + "/" + owner + "/" + pkg.text("name"))
}
