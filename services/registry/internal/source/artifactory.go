package source

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseArtifactory reads the event "docker tag was pushed" of JFrog Artifactory, in the predefined form (domain,
// event_type and data) and in the older one where the data stands at the top. sha256 is that of the manifest's file,
// which is the digest. The image is at jpd_origin, under the repository's key; a hook whose host is set replaces both
// host and, if it has a path, the key: docker.example.com or example.com/virtual.
func parseArtifactory(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	data := top
	if top.has("data") {
		data = top.in("data")
	}
	domain, kindOf := top.text("domain"), data.text("image_type")
	if domain != "" && domain != "docker" || top.text("event_type") != "pushed" || kindOf != "" && kindOf != "docker" {
		return nil, top.err()
	}
	n := core.Notification{
		Tag:   data.text("tag"),
		Names: core.Names{Image: data.name("image_name"), Digest: data.name("sha256"), Tag: data.name("tag")},
	}
	if sum := data.text("sha256"); sum != "" {
		n.Digest = "sha256:" + strings.TrimPrefix(sum, "sha256:")
	}
	if isDigest(n.Tag) || strings.HasPrefix(n.Tag, "sha256__") { // a platform's manifest, by its digest
		n.Tag = ""
	}
	if name := data.text("image_name"); name != "" {
		n.Image = strings.Trim(name, "/")
	}
	n.Place = place(top.text("jpd_origin"), data.text("repo_key"))
	// The payload has no time and no id. So a delivery sent again is the same event, and so is a push of the same digest
	// under the same tag; a tag that has moved is another.
	n.ID = strings.Join([]string{"pushed", data.text("repo_key"), n.Image, n.Tag, n.Digest}, " ")
	return single(n, top.err())
}

// place is the host of an origin and the key of a repository; empty if the origin names no host.
func place(origin, key string) string {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || key == "" {
		return ""
	}
	return u.Host + "/" + key
}
