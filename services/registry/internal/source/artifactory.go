package source

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseArtifactory parses the events "docker tag was pushed" and "docker tag was deleted" of JFrog Artifactory, in the predefined form
// (domain, event_type and data) and in the older one with the data at the top level. sha256 is that of the manifest's file, which is the digest. The image is at jpd_origin,
// under the repository's key; a hook's host replaces the host and, if it has a path, the key: docker.example.com or example.com/virtual.
func parseArtifactory(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	data := top
	if top.has("data") {
		data = top.in("data")
	}
	domain, about, kindOf := top.text("domain"), top.text("event_type"), data.text("image_type")
	if domain != "" && domain != "docker" || about != "pushed" && about != "deleted" || kindOf != "" && kindOf != "docker" {
		return nil, top.err()
	}
	n := core.Notification{
		Tag:   data.text("tag"),
		Names: core.Names{Image: data.name("image_name"), Digest: data.name("sha256"), Tag: data.name("tag")},
	}
	if sum := data.text("sha256"); sum != "" {
		n.Digest = "sha256:" + strings.TrimPrefix(sum, "sha256:")
	}
	if isDigest(n.Tag) || strings.HasPrefix(n.Tag, "sha256__") { // the manifest of one platform, by its digest
		n.Tag = ""
	}
	if name := data.text("image_name"); name != "" {
		n.Image = strings.Trim(name, "/")
	}
	n.Place = place(top.text("jpd_origin"), data.text("repo_key"))
	// The payload has no time and no id. So a repeated delivery is the same event, as is a repeated push of the same digest under the same
	// tag, unless it has moved or was deleted in between.
	n.Deleted, n.Undated = about == "deleted", true
	n.ID = strings.Join([]string{about, data.text("repo_key"), n.Image, n.Tag, n.Digest}, " ")
	return single(n, top.err())
}

// place returns the host of an origin with the key of a repository; empty if the origin has no host.
func place(origin, key string) string {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || key == "" {
		return ""
	}
	return u.Host + "/" + key
}
